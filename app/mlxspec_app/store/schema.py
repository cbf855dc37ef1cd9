"""The schema of the store: numbered scripts, each run once and in its own transaction.

`user_version` of the file counts the scripts that were run. A change of the schema is a new script
at the end; a released script never changes.
"""

import sqlite3
from functools import cache
from importlib import resources

from mlxspec_app.store.errors import StoreError

APPLICATION_ID = 0x6D6C7873  # "mlxs" in ASCII; the first script writes it into the file


@cache
def scripts() -> tuple[str, ...]:
    """Return the scripts in the order in which they run."""
    folder = resources.files("mlxspec_app.store") / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(file.read_text(encoding="utf-8") for file in files)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the number of scripts that were run on a file; the file does not change.

    A database of another program, or of a newer version, is a `StoreError`.
    """
    version = _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if _pragma(connection, "application_id") != APPLICATION_ID and (version or tables):
        raise StoreError(
            "the file is a database of another program, not a store of chats: move it away or "
            "choose another folder"
        )
    if version > len(scripts()):
        raise StoreError(
            f"the chat store has version {version} and this mlxspec reads versions up to "
            f"{len(scripts())}: update mlxspec or choose another folder; the file did not change"
        )
    return version


def migrate(connection: sqlite3.Connection, version: int | None = None) -> None:
    """Run the scripts that a file lacks, up to `version`; None for the newest.

    `connection` needs the SQL function `spaced`. If a script fails, the effect of those before it
    stays.
    """
    done = version_of(connection)
    for number, script in enumerate(scripts()[done:version], done + 1):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;"
            )
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def is_ours(connection: sqlite3.Connection) -> bool:
    """Return whether tables, triggers and indices are exactly those that the scripts create.

    A query of a view in place of a table may never end, and a table without its checks may hold any
    value.
    """
    return _made_things(connection) == _made_by_scripts()


@cache
def _made_by_scripts() -> list[tuple[str, ...]]:
    fresh = sqlite3.connect(":memory:")
    try:
        fresh.create_function("spaced", 1, str)
        migrate(fresh)
        return _made_things(fresh)
    finally:
        fresh.close()


def _made_things(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Return what the scripts created, without the tables that FTS5 creates for its index."""
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql NOT NULL AND "
        "tbl_name NOT LIKE 'search\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
        "ORDER BY name"
    ).fetchall()


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
