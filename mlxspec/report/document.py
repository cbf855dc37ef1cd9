"""The file of a report: one JSON document; a person can read its first lines before sending it.

The version changes when a figure changes its meaning. Anybody can write such a file, so the type of
each value is checked where it is used.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from mlxspec.errors import MlxspecError
from mlxspec.report.scrubbing import scrubbed

FORMAT = "mlxspec mac report"
VERSION = 1
_MOST_BYTES = 4_000_000
_DIGITS = 5
_MOST = 1e18  # no figure is larger, and none is negative

_NUMBERS = re.compile(r"\[[-+0-9.eE,\s]*\]")  # a list of numbers, which is written in one line
_ABOUT = (
    "What `mlxspec doctor --mac-report` found on one machine; `mlxspec doctor --read-report` "
    "says what it means.",
    "It holds figures of the machine and of built-in questions: nothing that anybody wrote, no "
    "paths, no names. Send it as it is.",
)

Status = Literal["done", "out of time", "failed", "interrupted", "not run"]
"""How a part ended; its findings count in any case."""


class ReportError(MlxspecError):
    """The error for a file that is not a report, or a damaged one."""


@dataclass(frozen=True)
class Record:
    """The result of a part; `found` are findings by name, also those of an unfinished part.

    `reason` says why the part did not finish; it is "" if it did.
    """

    status: Status
    seconds: float = 0.0
    reason: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The content of a file: the result of each part, by its name.

    The methods return values under nested names. They raise `ReportError` if a value has the wrong
    type.
    """

    records: Mapping[str, Record]

    def value(self, part: str, *names: str) -> Any:
        """Return a value; None if there is none."""
        here: Any = self.records[part].found if part in self.records else {}
        for name in names:
            if not isinstance(here, dict):
                raise _damaged(part, names)
            here = here.get(name)
            if here is None:
                return None
        return here

    def number(self, part: str, *names: str) -> float | None:
        """Return a number; None if there is no value."""
        found = self.value(part, *names)
        if found is None:
            return None
        if not _is_number(found):
            raise _damaged(part, names)
        return float(found)

    def text(self, part: str, *names: str) -> str:
        """Return a text; "" if there is no value."""
        found = self.value(part, *names)
        if found is None or isinstance(found, str):
            return found or ""
        raise _damaged(part, names)

    def numbers(self, part: str, *names: str) -> list[float]:
        """Return numbers; an empty list if there is no value."""
        found = self.value(part, *names)
        if found is None:
            return []
        if not isinstance(found, list) or not all(map(_is_number, found)):
            raise _damaged(part, names)
        return found

    def group(self, part: str, *names: str) -> dict[str, Any]:
        """Return named values; an empty dict if there is no value."""
        found = self.value(part, *names)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise _damaged(part, names)
        return found

    def curve(self, part: str, *names: str) -> dict[int, float]:
        """Return milliseconds by rows, 1 first; an empty dict if they were not measured."""
        if self.value(part, *names) is None:
            return {}
        rows, ms = self.numbers(part, *names, "rows"), self.numbers(part, *names, "ms")
        is_sound = len(rows) == len(ms) > 0 and rows[0] == 1 and min(ms) > 0
        if not is_sound or sorted(set(rows)) != rows:
            raise _damaged(part, names)
        return {int(row): took for row, took in zip(rows, ms, strict=True)}


def to_text(records: Mapping[str, Record]) -> str:
    """Return the content of a file, without names of machine and user and without paths."""
    parts = {name: _stated(record) for name, record in records.items()}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "about": [*_ABOUT, *_head_lines(parts)],
        "parts": parts,
    }
    text = json.dumps(document, indent=1, allow_nan=False)
    return _NUMBERS.sub(lambda found: " ".join(found[0].split()), text) + "\n"


def _stated(record: Record) -> dict[str, Any]:
    said = scrubbed({"reason": record.reason, "found": dict(record.found)})
    return {key: _short(value) for key, value in (asdict(record) | said).items()}


def _head_lines(parts: Mapping[str, Any]) -> list[str]:
    """Return lines with the machine, and with the status of each part."""
    machine = parts.get("machine", {}).get("found", {})
    known = [str(machine[name]) for name in ("device", "backend", "system") if machine.get(name)]
    ends = (
        f"{name}: {part['status']} after {part['seconds']:.0f} s" for name, part in parts.items()
    )
    return [", ".join(known) or "an unknown machine", *ends]


def read_report(path: Path) -> Report:
    """Read a file.

    Raises `ReportError` if it cannot be read, is not a report, has another version, or is damaged.
    """
    try:
        document = _read_json(path)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror or error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReportError(
            f"{path} is not a report of `mlxspec doctor --mac-report`, or it is damaged: give the "
            "whole file, unchanged"
        )
    if document.get("version") != VERSION:
        raise ReportError(
            f"{path} is a report of version {str(document.get('version'))[:20]}, and this mlxspec "
            f"reads version {VERSION}: read it with the mlxspec that wrote it, or write a new one"
        )
    parts = document.get("parts")
    if not isinstance(parts, dict):
        raise _damaged("parts", ())
    return Report({name: _record(name, content) for name, content in parts.items()})


def _record(name: str, content: Any) -> Record:
    stated = content if isinstance(content, dict) else {}
    status: Any = stated.get("status")
    seconds, reason, found = (stated.get(key) for key in ("seconds", "reason", "found"))
    if not (status in get_args(Status) and isinstance(reason, str) and isinstance(found, dict)):
        raise _damaged(name, ())
    if not _is_number(seconds):
        raise _damaged(name, ("seconds",))
    return Record(status, seconds, reason, found)


def _damaged(part: str, names: Sequence[str]) -> ReportError:
    path = " / ".join((part, *names))[:80]
    return ReportError(
        f"the report is damaged: the value of {path!r} cannot be read. Ask for the file again"
    )


def _read_json(path: Path) -> Any:
    """Return the document in a file; None if it is not JSON, or too large for a report."""
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    try:
        return json.loads(content) if len(content) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        return None


def _is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a figure: a number that is finite and not negative."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _MOST  # False for NaN and infinity too


def _short(value: Any) -> Any:
    """Return a value for JSON with few digits; NaN and infinity become null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_short(inner) for inner in value]
    return value
