"""The file of `mlxspec doctor --mac-report`: figures, and what they mean for the code.

The assumptions come from development without a Mac. A line that differs shows where to look next; a
broken one shows that drafts change the output of a model, which is never acceptable.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from mlxspec.errors import MlxspecError
from mlxspec.measure.tables import as_json

FORMAT = "mlxspec mac report"
VERSION = 2
_MOST_BYTES = 4_000_000
_ABOUT = (
    "What `mlxspec doctor --mac-report` found on one machine; `mlxspec doctor --read-report` "
    "prints what it means.",
    "It holds figures of the machine and of built-in questions: nothing that anybody wrote, no "
    "paths, no names. Send it as it is.",
)

Kind = Literal["as assumed", "differs", "not measured", "BROKEN"]


@dataclass(frozen=True)
class Line:
    """One assumption, compared with what was measured."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind:<14}{self.text}"


@dataclass(frozen=True)
class Finding:
    """The figures of one measurement, and what they mean."""

    figures: Mapping[str, Any]
    lines: tuple[Line, ...] = ()


def judged(text: str, is_assumed: bool) -> Line:
    """Return a line on an assumption."""
    return Line("as assumed" if is_assumed else "differs", text)


def to_text(found: Mapping[str, Finding]) -> str:
    """Return the content of a file."""
    document = {"format": FORMAT, "version": VERSION, "about": _ABOUT, "findings": found}
    few_digits = json.loads(
        json.dumps(as_json(document)), parse_float=lambda text: float(f"{float(text):.5g}")
    )
    return json.dumps(few_digits, indent=1) + "\n"


def read_lines(path: Path) -> list[Line]:
    """Return the lines of all findings in a file, which anybody may have written."""
    damaged = MlxspecError(
        f"{path} is not a report of `mlxspec doctor --mac-report`, or it is damaged: give the "
        "whole file, unchanged"
    )
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        document = json.loads(content) if len(content) <= _MOST_BYTES else None
    except OSError as error:
        raise MlxspecError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise damaged
    if document.get("version") != VERSION:
        raise MlxspecError(
            f"{path} is a report of version {str(document.get('version'))[:20]}, and this mlxspec "
            f"reads version {VERSION}: read it with the mlxspec that wrote it, or write a new one"
        )
    try:
        findings = document["findings"].values()
        lines = [Line(**line) for finding in findings for line in finding["lines"]]
        if not all(line.kind in get_args(Kind) and isinstance(line.text, str) for line in lines):
            raise TypeError("not a line")
    except (AttributeError, KeyError, TypeError) as error:
        raise damaged from error
    return lines
