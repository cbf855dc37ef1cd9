"""Transactions of the store, and the conversion of text and data that it can store."""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mlxspec_app.store.errors import explain


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the changes of the block, or roll them back if the block raises.

    A nested block is part of the outer transaction.

    Raises:
        StoreError: SQLite raised an error.
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
