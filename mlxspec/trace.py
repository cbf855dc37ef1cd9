"""The trace file: one event per line of JSON, written as it happens, readable without MLX.

A line holds the event's fields and its name under "t". Draft nodes and emitted tokens, which are
most of a trace, are lists of their values in the order of their fields.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import astuple, fields
from os import PathLike
from pathlib import Path
from types import TracebackType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from mlxspec.errors import TraceError
from mlxspec.events import TRACE_FORMAT, DraftNode, EmittedToken, Event, GenerationStarted

_EVENT_TYPES: dict[str, type[Any]] = {cls.t: cls for cls in get_args(Event)}
_ROW_TYPES: dict[str, type[Any]] = {"nodes": DraftNode, "emit": EmittedToken}
_HINTS = {cls: get_type_hints(cls) for cls in (*_EVENT_TYPES.values(), *_ROW_TYPES.values())}


def event_to_json(event: Event) -> str:
    """Return the event as one line of JSON, without the line break."""
    record: dict[str, Any] = {"t": event.t}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _ROW_TYPES:
            value = [astuple(row) for row in value]
        record[field.name] = value
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def event_from_json(line: str) -> Event:
    """Return the event that a line of a trace holds.

    Raises:
        TraceError: The line is not JSON, or not an event that this version knows.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"a trace line is not JSON: {line[:80]!r}") from error
    kind = record.get("t") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in _EVENT_TYPES:
        raise TraceError(
            f"a trace line holds the event {kind!r}; known are {', '.join(_EVENT_TYPES)}"
        )
    cls = _EVENT_TYPES[kind]
    values = {name: value for name, value in record.items() if name != "t"}
    event: Event = _build(cls, values)
    if isinstance(event, GenerationStarted) and event.format != TRACE_FORMAT:
        raise TraceError(
            f"the trace has the format {event.format!r}; this version reads "
            f"{TRACE_FORMAT!r}: record it again or use the version that wrote it"
        )
    return event


def _build(cls: type[Any], values: Mapping[str, Any]) -> Any:
    known = {field.name for field in fields(cls)}
    values = {name: value for name, value in values.items() if name in known}
    for name, row_type in _ROW_TYPES.items():
        if name in values:
            values[name] = tuple(_build_row(row_type, row) for row in _as_list(cls, name, values))
    if "path" in values:
        values["path"] = tuple(_as_list(cls, "path", values))
    for name, value in values.items():
        if name not in _ROW_TYPES and not _fits(value, _HINTS[cls][name]):
            raise TraceError(
                f"a trace event {cls.__name__} has {name}={value!r:.80}, not {_HINTS[cls][name]}"
            )
    try:
        return cls(**values)
    except TypeError as error:
        raise TraceError(f"a trace event lacks a field: {error}") from error


def _as_list(cls: type[Any], name: str, values: Mapping[str, Any]) -> list[Any]:
    value = values[name]
    if not isinstance(value, list):
        raise TraceError(f"a trace event {cls.__name__} has {name}={value!r:.80}, not a list")
    return value


def _build_row(cls: type[Any], row: Any) -> Any:
    names = [field.name for field in fields(cls)]
    if not isinstance(row, list) or len(row) > len(names):
        raise TraceError(f"a trace row is {row!r:.80}, not a list of {', '.join(names)}")
    return _build(cls, dict(zip(names, row, strict=False)))


def _fits(value: Any, hint: Any) -> bool:
    origin, options = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return any(_fits(value, option) for option in options)
    if origin is Literal:
        return value in options if isinstance(value, str) else False
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, options[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


class TraceWriter:
    """Appends events to a trace file; use it as a context manager.

    Every event that ends a round is flushed, so a trace survives whatever ends the process.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Open the file for appending.

        Raises:
            TraceError: The file cannot be written.
        """
        self.path = Path(path)
        try:
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise TraceError(f"cannot write the trace to {self.path}: {error.strerror}") from error

    def write(self, event: Event) -> None:
        """Append one event.

        Raises:
            TraceError: The disk is full or the file is gone.
        """
        try:
            self._file.write(event_to_json(event) + "\n")
            if event.t != "draft":  # its verdict follows at once
                self._file.flush()
        except OSError as error:
            raise TraceError(f"cannot write the trace to {self.path}: {error.strerror}") from error

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_trace(path: str | PathLike[str]) -> Iterator[Event]:
    """Yield the events of a trace file.

    A last line without a line break, as a killed process leaves it, is passed over.

    Raises:
        TraceError: The file cannot be read, or a line of it is not an event; names the line.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return
                if line.strip():
                    yield _event_at(line, path, number)
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"the trace {path} is not UTF-8 text") from error


def _event_at(line: str, path: str | PathLike[str], number: int) -> Event:
    try:
        return event_from_json(line)
    except TraceError as error:
        raise TraceError(f"{path}, line {number}: {error}") from error
