"""Errors of the chat store."""

from typing import TYPE_CHECKING

from mlxspec.errors import MlxspecError

if TYPE_CHECKING:
    import sqlite3

_PRIMARY_CODE = 0xFF  # the low byte of an error code; the other bytes give details


class StoreError(MlxspecError):
    """The store cannot be opened, read or written."""


class DamagedStoreError(StoreError):
    """The file is not a database, or parts of it are lost."""


class GoneError(StoreError):
    """The chat or the message is not in the store, or not any more."""


def explain(error: "sqlite3.Error") -> StoreError:
    """Return our error for an error of SQLite, worded for the user."""
    import sqlite3  # slow to import, and most screens that name these errors never see one

    code = (getattr(error, "sqlite_errorcode", None) or 0) & _PRIMARY_CODE
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DamagedStoreError(f"the chat store is damaged ({error}): start the app again")
    if code == sqlite3.SQLITE_CONSTRAINT:
        return GoneError(
            "the chat or the message is no longer in the store: another window may have "
            f"deleted it ({error})"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError("the chat store is locked by another program: close that program")
    if "no such module: fts5" in str(error):
        return StoreError(
            "chats cannot be saved: the SQLite of this Python lacks full-text search (FTS5); use "
            "another build of Python"
        )
    return StoreError(f"the chat store cannot be used: {error}")
