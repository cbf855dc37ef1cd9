"""What can be wrong with the store of chats."""

from typing import TYPE_CHECKING

from mlxspec.errors import MlxspecError

if TYPE_CHECKING:
    import sqlite3

_PRIMARY_CODE = 0xFF  # the low byte of an error code; the rest says more about it


class StoreError(MlxspecError):
    """The store cannot be opened, read or written."""


class DamagedStoreError(StoreError):
    """The file is no database, or parts of it are lost."""


class GoneError(StoreError):
    """A chat or a message that is not in the store, or not any more."""


def explain(error: "sqlite3.Error") -> StoreError:
    """Return what an error of SQLite means to the user."""
    import sqlite3  # slow, and a screen that names these errors need not meet one

    code = (getattr(error, "sqlite_errorcode", None) or 0) & _PRIMARY_CODE
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DamagedStoreError(f"the store of chats is damaged ({error}): start the app again")
    if code == sqlite3.SQLITE_CONSTRAINT:
        return GoneError(
            "the chat or the message is not in the store any more: another window may have "
            f"deleted it ({error})"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError("the store of chats is held by another program: close that one")
    if "no such module: fts5" in str(error):
        return StoreError(
            "chats cannot be kept: the SQLite of this Python lacks full-text search (FTS5); use "
            "another build of Python"
        )
    return StoreError(f"the store of chats cannot be used: {error}")
