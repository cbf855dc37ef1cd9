"""One change of the store: all of it happens or nothing does."""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mlxspec_app.store.errors import explain


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block changes, or undo it if it raises; a block within a block joins it.

    Raises:
        StoreError: SQLite refused.
    """
    if connection.in_transaction:
        yield
        return
    try:
        connection.execute("BEGIN IMMEDIATE")  # a later lock could be refused without a wait
        yield
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise explain(error) from error
    finally:
        if connection.in_transaction:  # some errors have SQLite undo it by itself
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")


def storable(text: str) -> str:
    """Return the text, with lone surrogates, which no database takes, written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def to_json(value: Any) -> str:
    """Return plain data as JSON; a number that JSON cannot spell becomes null."""
    return storable(json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":")))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
