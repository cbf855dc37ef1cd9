"""How every measurement is written: tables for people, and JSON for programs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as text, the header first: the first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            f"{text:>{width}}" if number else f"{text:<{width}}"
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def cell(value: float | None, digits: int = 2) -> str:
    """Return a cell; "-" for a figure that was not measured."""
    return "-" if value is None else f"{value:.{digits}f}"


def as_json(value: Any) -> Any:
    """Return figures ready for JSON.

    A dataclass becomes an object of its fields, and of the properties that its class lists in
    `DERIVED`. Numbers that are not finite become null.
    """
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        names += getattr(value, "DERIVED", ())
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
