"""Checkpoints of the fold: any earlier state of a recording at the cost of a few events.

A fold cannot be undone, so a move back folds again. From the start, the time for that grows with
the recording; from the nearest checkpoint it is about constant. Checkpoints share every message
that can no longer change.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Pace
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.playback.timeline import Timeline, folded_events

_SPACING = 256  # at most this number of moments between two checkpoints


class Checkpoints:
    """Returns the state at any position of a timeline."""

    def __init__(self, timeline: Timeline, opening: Iterable[AnyEvent] = ()) -> None:
        """Choose the positions of the checkpoints; this folds only the opening.

        `opening` are the events of the session before the recording starts.
        """
        self._timeline = timeline
        self._positions = _positions(timeline)
        self._saved = [fold(opening)]

    def state_at(self, position: int) -> ChatState:
        """Return the state after the moments up to a position; the caller may change it.

        Messages have the same numbers in each call. A reply that is not finished at the position
        is a copy with the same number as the finished one, and with perhaps fewer spans.
        """
        nearest = bisect_right(self._positions, position) - 1
        while len(self._saved) <= nearest:
            last = len(self._saved) - 1
            start, end = self._positions[last], self._positions[last + 1]
            self._saved.append(self._folded(self._saved[last], start, end))
        return self._folded(self._saved[nearest], self._positions[nearest], position)

    def _folded(self, state: ChatState, start: int, end: int) -> ChatState:
        return fold(folded_events(self._timeline.moments[start:end]), copy_state(state))


def _positions(timeline: Timeline) -> list[int]:
    """Return the positions of checkpoints, also around each reply, so that others are shared."""
    found = {0, *range(0, len(timeline), _SPACING)}
    for position, (before, after) in enumerate(pairwise(timeline.moments), 1):
        if before.phase != after.phase and "prefill" in (before.phase, after.phase):
            found.add(position)
    return sorted(found)


def copy_state(state: ChatState) -> ChatState:
    """Return a copy that can change without an effect on `state`."""
    copied: ChatState = _copy(state)
    last = copied.messages[-1] if copied.messages else None
    if isinstance(last, Reply) and not last.is_finished:
        copied.messages[-1] = _copy(last)
    return copied


def _copy(record: Any) -> Any:
    return replace(
        record, **{item.name: _own(getattr(record, item.name)) for item in fields(record)}
    )


def _own(value: Any) -> Any:
    """Return a copy that is safe to change; the items of a list or a dict are not copied."""
    if isinstance(value, list | dict):
        return value.copy()
    return _copy(value) if isinstance(value, GenerationStats | Pace) else value
