"""How the coming and going of models changes the state of the screen; see `state.py`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlxspec_app.conversation.baseline import Baseline
from mlxspec_app.conversation.session import (
    LoadFailed,
    LoadProgress,
    SessionFailed,
    SessionOpening,
    SessionReady,
)

if TYPE_CHECKING:  # the state itself calls what stands here
    from mlxspec_app.conversation.state import ChatState


def _open(state: "ChatState", event: SessionOpening) -> None:
    if state.phase != "loading":  # else the models before return after a failure
        state.load_failure = None
    state.phase, state.error = "loading", ""
    state.target, state.drafter, state.choice = event.target, event.drafter, event.choice
    state.baseline = Baseline()


def _progress(state: "ChatState", event: LoadProgress) -> None:
    state.loading = event


def _ready(state: "ChatState", event: SessionReady) -> None:
    state.phase, state.loading = "ready", None


def _fail_load(state: "ChatState", event: LoadFailed) -> None:
    state.load_failure, state.loading = event, None


def _fail_session(state: "ChatState", event: SessionFailed) -> None:
    state.phase, state.loading, state.error = "failed", None, event.message
    state.choice = None if event.is_over else state.choice


LOADING: dict[type, Callable[["ChatState", Any], None]] = {
    SessionOpening: _open,
    LoadProgress: _progress,
    SessionReady: _ready,
    LoadFailed: _fail_load,
    SessionFailed: _fail_session,
}
"""What each event does to the state."""
