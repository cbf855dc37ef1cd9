"""Reads and writes small JSON files that may come from anybody: bounded in size, finite numbers."""

import json
import math
from pathlib import Path
from typing import Any, TypeGuard

_DIGITS = 5
_MOST = 1e18
"""No figure is larger; none is negative."""


def read_json(path: Path, most_bytes: int) -> Any:
    """Return the document in a file; None if it is no JSON, or larger than allowed.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    try:
        return json.loads(content) if len(content) <= most_bytes else None
    except (ValueError, RecursionError):
        return None


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a figure: a number that is finite and not negative."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _MOST  # False for NaN and infinity too


def short(value: Any) -> Any:
    """Return a value for JSON with few digits; NaN and infinity become null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: short(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [short(inner) for inner in value]
    return value
