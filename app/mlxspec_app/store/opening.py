"""Opens the store file: creates it, migrates it to the newest schema, moves a damaged one aside.

A lock file lets one process at a time open the store. Without it, two processes that find the same
damaged file could each move one aside, and the second would move the new file of the first. Another
lock tells whether a process has the store open: a reply without an end was cut off only if no
process is still writing it.
"""

import fcntl
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlxspec_app.store.errors import DamagedStoreError, StoreError, explain
from mlxspec_app.store.schema import is_ours, migrate, version_of
from mlxspec_app.store.search_text import spaced
from mlxspec_app.user.files import make_private_file, make_private_folder, private_opener

BUSY_S = 3.0  # how long one process waits for another to finish writing
_COMPANIONS = ("", "-wal", "-shm")  # the files that make up one database


def open_for_writing(path: Path, notify: Callable[[str], None]) -> sqlite3.Connection:
    """Return a connection to a store of the newest schema; create file and folder if missing.

    `notify` is called with a message for the user when a damaged file was moved aside. The folder
    may be unwritable, or the file that of another program or a newer version: a `StoreError`.
    """
    try:
        with _locked(path):
            try:
                return _open(path)
            except DamagedStoreError:
                aside = _set_aside(path)
                notify(f"the chat store was damaged: it is now {aside}, and a new one was begun")
                return _open(path)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"chats cannot be saved in {path.parent}: {reason}") from error


@contextmanager
def present(path: Path) -> Iterator[bool]:
    """Hold a shared lock that shows other processes that this one has the store open.

    The folder of `path` must exist. Yields whether no other process had the store open before.
    """
    is_alone = False
    with open(path.with_suffix(".open"), "a", opener=private_opener) as file:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        fcntl.flock(file, fcntl.LOCK_SH)  # no later process gets an exclusive lock now
        yield is_alone


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    make_private_folder(path.parent)
    with open(path.with_suffix(".lock"), "w", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the system however the process ends
        yield


def _open(path: Path) -> sqlite3.Connection:
    if not path.exists():
        make_private_file(path)  # chats are private: no other user of the machine may read them
    connection = None
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        connection.create_function("spaced", 1, spaced, deterministic=True)
        connection.execute("PRAGMA foreign_keys = ON")
        version_of(connection)  # before anything is changed
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise DamagedStoreError(f"the chat store is damaged: {verdict}")
        connection.execute("PRAGMA journal_mode = WAL")
        # NORMAL keeps a WAL database consistent after a power cut, without an fsync per round.
        connection.execute("PRAGMA synchronous = NORMAL")
        migrate(connection)
        if not is_ours(connection):
            raise DamagedStoreError("the chat store has tables that mlxspec did not make")
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise explain(error) from error
        raise
    return connection


def _set_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.stem}-damaged-{stamp}{path.suffix}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.stem}-damaged-{stamp}-{number}{path.suffix}")
    for companion in _COMPANIONS:
        part = path.with_name(path.name + companion)
        if part.exists():
            part.rename(aside.with_name(aside.name + companion))
    return aside
