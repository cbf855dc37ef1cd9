"""Transactions of the store, and the conversion of values for its columns and back.

The schema checks types only: a time may be outside every calendar, JSON may hold anything. Such a
value counts as missing.
"""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mlxspec_app.store.errors import explain

_LAST = 253_402_300_799.0  # the end of the year 9999, the last year of Python's dates


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the changes of the block, or roll them back if the block raises.

    A nested block is part of the outer transaction. An error of SQLite becomes a `StoreError`.
    """
    if connection.in_transaction:
        yield
        return
    try:
        # Lock now: a read lock that turns into a write lock later may fail at once, without a wait.
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise explain(error) from error
    finally:
        if connection.in_transaction:  # after some errors SQLite has rolled back by itself
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")


def storable(text: str) -> str:
    """Return the text with lone surrogates escaped, because SQLite cannot store them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def to_json(value: Any) -> str:
    """Return plain data as JSON; NaN and infinity, which JSON lacks, become null."""
    return storable(json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":")))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


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
