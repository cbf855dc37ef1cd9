"""Turns a stored chat back into messages for the screen.

If the trace of a reply exists and agrees with the stored text, the trace restores its rounds,
probabilities and figures. Any other reply has its text, its end and its stored figures. Reading
many traces is slow: call this in a thread.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args

from mlxspec.errors import TraceError
from mlxspec.trace.events import FinishReason, GenerationStarted, SpeedupMeasured
from mlxspec.trace.file import event_from_record, read_trace
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.store.records import COMPARISON, Generation, StoredMessage, storable

CUT_OFF = "the app ended in the middle of this reply"
_BROKE_OFF = "the reply was cut off"
_TOO_LARGE = 2**53  # larger than any figure of a reply
E = TypeVar("E", GenerationStarted, SpeedupMeasured)


def restore(path: Iterable[StoredMessage], traces: Path) -> tuple[Message, ...]:
    """Return one message for each stored message, oldest first; `traces` is a folder."""
    return tuple(_message(stored, traces) for stored in path)


def _message(stored: StoredMessage, traces: Path) -> Message:
    if stored.role == "user":
        return Message("user", _spans(stored.text))
    generation = stored.generation or Generation()
    reply = _traced(stored.text, generation.trace, traces) or _untraced(stored.text, generation)
    comparison = _event(SpeedupMeasured, generation.stats.get(COMPARISON))
    if comparison is not None:
        reply.measured, reply.num_copied = comparison, comparison.copied
    _end(reply, stored, generation)
    return reply


def _traced(text: str, name: str, traces: Path) -> Reply | None:
    """Return a reply from its trace, or None if the trace does not agree with the stored text.

    The trace of a killed process may lack the last round, which the store has: its text is added.
    """
    if not name:
        return None
    try:
        reply = fold(read_trace(traces / Path(name).name)).reply
    except TraceError:
        return None
    traced = storable(reply.text) if reply is not None else ""
    if reply is None or not traced or not text.startswith(traced):
        return None
    reply.spans += _spans(text[len(traced) :])
    return reply


def _untraced(text: str, generation: Generation) -> Reply:
    memory = generation.stats.get("peak_memory_gb")
    columns = {"target": generation.target, "drafter": generation.drafter}
    record = {**generation.settings, **columns, "seed": generation.seed or 0}
    return Reply(
        spans=_spans(text),
        started=_event(GenerationStarted, record) if generation.target else None,
        stats=_figures(generation.stats),
        peak_memory=float(memory) if memory and _is_figure(memory) else None,
    )


def _end(reply: Reply, stored: StoredMessage, generation: Generation) -> None:
    """Set the end of a reply from the store; a restored reply is never still being written."""
    reply.reason, reply.error = None, ""
    if stored.state == "failed":
        reply.error = generation.error or _BROKE_OFF
    elif stored.state == "partial" and generation.reason in (None, "lost"):  # of earlier versions
        reply.error = CUT_OFF
    else:
        reasons: Mapping[str, FinishReason] = {name: name for name in get_args(FinishReason)}
        reply.reason = reasons.get(generation.reason or "", "stop")


def _spans(text: str) -> list[Span]:
    return [Span(text)] if text else []


def _event(kind: type[E], record: Any) -> E | None:
    """Return an event from its stored fields; None if there are none, or invalid ones."""
    with suppress(TraceError):
        event = event_from_record({**record, "t": kind.t} if isinstance(record, dict) else None)
        return event if isinstance(event, kind) else None
    return None


def _figures(stats: Mapping[str, Any]) -> GenerationStats:
    """Return the stored figures, without unknown names and wrong types."""
    found = GenerationStats()
    for item in fields(found):
        value = stats.get(item.name)
        if _is_like(value, getattr(found, item.name)):
            setattr(found, item.name, value)
    return found


def _is_like(value: Any, default: Any) -> bool:
    """Return whether a value has the type of a figure: a number, or a list or dict of numbers."""
    if isinstance(default, list | dict):
        numbers = value.values() if isinstance(value, dict) else value
        return type(value) is type(default) and all(map(_is_figure, numbers))
    return isinstance(default, int | float) and _is_figure(value)


def _is_figure(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _TOO_LARGE
