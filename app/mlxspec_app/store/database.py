"""The store file: created, migrated, moved aside if it is damaged; its transactions and errors.

The schema is numbered scripts, each run once and in its own transaction. `user_version` of the file
counts those that were run. A change of the schema is a new script; a released one never changes.

A lock file lets one process at a time open the store. Without it, two processes that find the same
damaged file could each move one aside, and the second would move the new file of the first.
"""

import fcntl
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path

from mlxspec_app.store.errors import DamagedStoreError, GoneError, StoreError
from mlxspec_app.store.search_text import spaced
from mlxspec_app.user.files import (
    free_path,
    make_private_file,
    make_private_folder,
    private_opener,
)

APPLICATION_ID = 0x6D6C7873  # "mlxs" in ASCII; the first script writes it into the file
BUSY_S = 3.0  # how long one process waits for another to finish writing
_COMPANIONS = ("", "-wal", "-shm")  # the files that make up one database
_PRIMARY_CODE = 0xFF  # the low byte of an error code; the other bytes give details


@cache
def scripts() -> tuple[str, ...]:
    """Return the scripts of the schema in the order in which they run."""
    folder = resources.files("mlxspec_app.store") / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(file.read_text(encoding="utf-8") for file in files)


def migrate(connection: sqlite3.Connection, version: int | None = None) -> None:
    """Run the scripts that a file lacks, up to `version`; None for the newest.

    If a script fails, the effect of those before it stays.
    """
    done = _version_of(connection)
    for number, script in enumerate(scripts()[done:version], done + 1):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;"
            )
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _version_of(connection: sqlite3.Connection) -> int:
    """Return the number of scripts that were run on a file; refuse a file that is not ours."""
    [version], [owner], [tables] = (
        connection.execute(query).fetchone()
        for query in (
            "PRAGMA user_version",
            "PRAGMA application_id",
            "SELECT count(*) FROM sqlite_schema",
        )
    )
    if owner != APPLICATION_ID and (version or tables):
        raise StoreError(
            "the file is a database of another program, not a store of chats: move it away or "
            "choose another folder"
        )
    if version > len(scripts()):
        raise StoreError(
            f"the chat store has version {version} and this mlxspec reads versions up to "
            f"{len(scripts())}: update mlxspec or choose another folder; the file did not change"
        )
    return int(version)


def open_for_writing(path: Path, notify: Callable[[str], None]) -> sqlite3.Connection:
    """Return a connection to a store of the newest schema; create file and folder if missing.

    `notify` is called with a message for the user when a damaged file was moved aside. The folder
    may be unwritable, or the file that of another program or a newer version: a `StoreError`.
    """
    try:
        make_private_folder(path.parent)
        with open(path.with_suffix(".lock"), "w", opener=private_opener) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the system however the process ends
            try:
                return _open(path)
            except DamagedStoreError:
                aside = _set_aside(path)
                notify(f"the chat store was damaged: it is now {aside}, and a new one was begun")
                return _open(path)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"chats cannot be saved in {path.parent}: {reason}") from error


def _open(path: Path) -> sqlite3.Connection:
    if not path.exists():
        make_private_file(path)  # chats are private: no other user of the machine may read them
    connection = None
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        connection.create_function("spaced", 1, spaced, deterministic=True)
        connection.execute("PRAGMA foreign_keys = ON")
        _version_of(connection)  # before anything is changed
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise DamagedStoreError(f"the chat store is damaged: {verdict}")
        connection.execute("PRAGMA journal_mode = WAL")
        # NORMAL keeps a WAL database consistent after a power cut, without an fsync per round.
        connection.execute("PRAGMA synchronous = NORMAL")
        migrate(connection)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise explain(error) from error
        raise
    return connection


def _set_aside(path: Path) -> Path:
    stem = f"{path.stem}-damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    aside = free_path(path.parent, stem, path.suffix)
    for companion in _COMPANIONS:
        with suppress(FileNotFoundError):
            path.with_name(path.name + companion).rename(aside.with_name(aside.name + companion))
    return aside


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


def explain(error: sqlite3.Error) -> StoreError:
    """Return our error for an error of SQLite, worded for the user."""
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
