"""The recordings that come with mlxspec: a chat, for users without a model, and a race."""

import time
from collections.abc import Callable
from pathlib import Path

import mlxspec
from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec.trace.file import read_trace
from mlxspec_app.playback.race import Race, Track

_CHAT, _PLAIN, _DRAFTED = "chat.jsonl", "code-plain.jsonl", "code.jsonl"


def read_demo() -> list[Event]:
    """Return the recorded chat.

    Raises:
        TraceError: The recording is not part of this installation, or is damaged.
    """
    return _read(_CHAT)


def read_race(clock: Callable[[], float] = time.monotonic) -> Race:
    """Return the recorded race: the model alone against the model with drafts.

    Raises:
        TraceError: A recording is not part of this installation, or is damaged.
    """
    return Race([Track("A", _read(_PLAIN)), Track("B", _read(_DRAFTED))], clock)


def _read(name: str) -> list[Event]:
    """Read a recording from the package or, in a checkout, from the folder next to it."""
    package = Path(mlxspec.__file__).parent
    paths = [folder / "assets" / name for folder in (package, package.parent)]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise TraceError(f"the recording {name} is not part of this installation: {paths[0]}")
    return list(read_trace(found))
