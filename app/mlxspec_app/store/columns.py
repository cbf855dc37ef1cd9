"""Converts values from the columns of the store.

The schema checks types only: a time may be outside every calendar, JSON may hold anything. Such a
value counts as missing.
"""

import json
from typing import Any

_LAST = 253_402_300_799.0  # the end of the year 9999, the last year of Python's dates


def time_of(seconds: float) -> float:
    """Return the seconds since 1970, or 0 if they are not a date."""
    return seconds if 0 <= seconds <= _LAST else 0.0


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in a text, or {} if it holds no object."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def seed_of(text: str | None) -> int | None:
    """Return a seed from its digits, or None if they are not a number."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
