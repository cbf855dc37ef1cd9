"""The trace file: one line of JSON per event, written as it happens, readable without MLX.

A line has the event's fields, and its name under "t". Draft nodes and emitted tokens are most of a
trace, so each is a list of its values in the order of the fields, without field names.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from functools import cache
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from mlxspec.errors import TraceError
from mlxspec.trace.events import (
    TRACE_FORMAT,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    Event,
    GenerationStarted,
)

_EVENT_TYPES: dict[str, type[Any]] = {cls.t: cls for cls in get_args(Event)}
_ROW_TYPES: dict[str, type[Any]] = {"nodes": DraftNode, "emit": EmittedToken}
_TOO_LARGE = 2**63
_TYPES = (*_EVENT_TYPES.values(), *_ROW_TYPES.values())
_NAMES = {cls: tuple(field.name for field in fields(cls)) for cls in _TYPES}
_HINTS = {cls: get_type_hints(cls) for cls in _TYPES}
_LISTS = {
    cls: {name for name, hint in hints.items() if get_origin(hint) is tuple}
    for cls, hints in _HINTS.items()
}


def event_to_json(event: Event) -> str:
    """Return the event as one line of JSON, without the line break."""
    record: dict[str, Any] = {"t": event.t}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _ROW_TYPES:
            value = [_row_values(row) for row in value]
        record[field.name] = value
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _row_values(row: DraftNode | EmittedToken) -> tuple[Any, ...]:
    """Return the values of a row in the order of its fields.

    The channel of an answer is left out: such rows are most of a trace, and a reader that knows no
    channels refuses longer ones.
    """
    values = astuple(row)
    return values[:-1] if isinstance(row, EmittedToken) and row.channel == "answer" else values


def event_from_json(line: str) -> Event:
    """Return the event of one line of a trace; raise TraceError if it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"a trace line is not JSON: {line[:80]!r}; give a file that --trace has written"
        ) from error
    return event_from_record(record)


def event_from_record(record: Any) -> Event:
    """Return the event of one line of a trace, given its parsed JSON."""
    kind = record.get("t") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in _EVENT_TYPES:
        raise TraceError(
            f"a trace line has the event {kind!r}; allowed are {', '.join(_EVENT_TYPES)}"
        )
    cls = _EVENT_TYPES[kind]
    values = {name: value for name, value in record.items() if name != "t"}
    event: Event = _build(cls, values)
    if isinstance(event, GenerationStarted) and event.format != TRACE_FORMAT:
        raise TraceError(
            f"the trace has the format {event.format!r}; this version reads "
            f"{TRACE_FORMAT!r}: record it again or use the version that wrote it"
        )
    if isinstance(event, DraftProposed):
        _check_tree(event.nodes)
    return event


def _check_tree(nodes: Sequence[DraftNode]) -> None:
    known = {0}
    for node in nodes:
        if node.index in known or node.parent not in known:
            raise TraceError(
                f"draft node {node.index} has parent {node.parent}; a node must be listed once, "
                f"after its parent, and 0 is the root"
            )
        known.add(node.index)


def _build(cls: type[Any], values: Mapping[str, Any]) -> Any:
    # Fields of later versions are ignored, so that this version can read their traces.
    hints, lists = _HINTS[cls], _LISTS[cls]
    known = {name: value for name, value in values.items() if name in _NAMES[cls]}
    for name, value in known.items():
        row_type, hint, is_list = _ROW_TYPES.get(name), hints[name], name in lists
        if is_list and isinstance(value, list):
            known[name] = tuple(_build_row(row_type, row) if row_type else row for row in value)
        if isinstance(value, list) != is_list or not (row_type or _test_of(hint)(known[name])):
            kind = "a list" if is_list and not isinstance(value, list) else hint
            raise TraceError(f"a trace event {cls.__name__} has {name}={value!r:.80}, not {kind}")
    try:
        return cls(**known)
    except TypeError as error:
        raise TraceError(f"a trace event lacks a field: {error}") from error
    except ValueError as error:
        raise TraceError(f"a trace event {cls.__name__} is not valid: {error}") from error


def _build_row(cls: type[Any], row: Any) -> Any:
    names = _NAMES[cls]
    if not isinstance(row, list) or len(row) > len(names):
        raise TraceError(f"a trace row is {row!r:.80}, not a list of {', '.join(names)}")
    return _build(cls, dict(zip(names, row, strict=False)))


@cache
def _test_of(hint: Any) -> Callable[[Any], bool]:
    origin, options = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        tests = [_test_of(option) for option in options]
        return lambda value: any(test(value) for test in tests)
    if origin is Literal:
        return lambda value: value in options if isinstance(value, str) else False
    if origin is tuple:
        is_item = _test_of(options[0])
        return lambda value: isinstance(value, tuple) and all(map(is_item, value))
    if origin is dict:
        return lambda value: isinstance(value, dict)
    if hint is float:
        return lambda value: _is_number(value, (int, float))
    if hint is int:
        return lambda value: _is_number(value, int)
    return lambda value: isinstance(value, hint)


def _is_number(value: Any, kinds: Any) -> bool:
    """Return whether a value is a number, finite and below 2**63."""
    # True and False are integers in Python, and NaN is never below a number.
    return isinstance(value, kinds) and not isinstance(value, bool) and abs(value) < _TOO_LARGE


class TraceWriter:
    """Appends events to a trace file; use it as a context manager.

    Every event that ends a round is flushed, so the trace is complete even if the process dies. Its
    methods raise TraceError if the file cannot be written, for instance because the disk is full.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        with self._reported():
            # A lone surrogate is not UTF-8; backslashreplace writes it as \udXXX, as JSON does.
            self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")

    def write(self, event: Event) -> None:
        with self._reported():
            self._file.write(event_to_json(event) + "\n")
            if event.t != "draft":  # its verdict follows at once and flushes both
                self._file.flush()

    def close(self) -> None:
        with self._reported():
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TraceError(f"cannot write the trace to {self.path}: {error.strerror}") from error


def read_trace(path: str | PathLike[str]) -> Iterator[Event]:
    """Yield the events of a trace file; raise TraceError, which names the line, if it has others.

    A last line without a line break, as a killed process leaves it, is skipped.
    """
    draft: DraftProposed | None = None
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return
                if not line.strip():
                    continue
                try:
                    event = event_from_json(line)
                    if isinstance(event, DraftVerified):
                        _check_verdict(event, draft)
                except TraceError as error:
                    raise TraceError(f"{path}, line {number}: {error}") from error
                draft = event if isinstance(event, DraftProposed) else None
                yield event
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"the trace {path} is not UTF-8 text") from error


def _check_verdict(verdict: DraftVerified, draft: DraftProposed | None) -> None:
    if draft is None or draft.r != verdict.r:
        raise TraceError(f"the verdict of round {verdict.r} does not follow the draft of its round")
    parents = {node.index: node.parent for node in draft.nodes}
    last = 0
    for index in verdict.path:
        if parents.get(index) != last:
            raise TraceError(
                f"the accepted path of round {verdict.r} is {list(verdict.path)!r:.80}; each node "
                f"must be a child of the node before it"
            )
        last = index
