"""What stands in a column of the store, as what it was written for.

The schema checks types, not meanings: a time may lie beyond every calendar, JSON may hold anything.
Such a value is read as if it were missing.
"""

import json
from typing import Any

_LAST = 253_402_300_799.0  # the end of the year 9999, the last that a date can have


def time_of(seconds: float) -> float:
    """Return seconds since 1970, 0 where no date lies there."""
    return seconds if 0 <= seconds <= _LAST else 0.0


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a text holds, an empty one where it holds another thing."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def seed_of(text: str | None) -> int | None:
    """Return a seed from its digits, None where it is none."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
