"""The store file: made, brought up to date, shared, and never lost."""

import re
import sqlite3
import threading

import pytest

from mlxspec_app.store.database import migrate, open_for_writing, scripts
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.search_text import spaced
from tests.support.store_files import messages_of, open_reader, open_writer, say, texts_of

PAGE = 4096


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "chats.sqlite3"


def fill(path):
    """Make a store with one long chat."""
    writer = open_writer(path)
    say(writer, writer.new_chat("Long"), *(f"message {n} {'x' * 500}" for n in range(40)))
    writer.close()


def schema(connection):
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")
    return [(kind, name, re.sub(r"\s+", " ", sql or "")) for kind, name, sql in rows]


def set_aside(path):
    """Open a damaged store; return the copy beside the new and empty one."""
    notices = []
    connection = open_for_writing(path, notices.append)
    assert connection.execute("SELECT count(*) FROM chat").fetchone() == (0,)
    connection.close()
    (aside,) = path.parent.glob("chats-damaged-*.sqlite3")
    assert len(notices) == 1
    assert str(aside) in notices[0]
    return aside


def raw(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.create_function("spaced", 1, spaced, deterministic=True)
    return connection


# ---- versions ------------------------------------------------------------------------------


def test_a_new_store_has_the_newest_version_and_is_private(path):
    connection = open_for_writing(path, pytest.fail)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(scripts()),)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert path.stat().st_mode & 0o077 == 0
    connection.close()


@pytest.mark.parametrize("version", range(len(scripts())))
def test_an_earlier_version_becomes_what_a_fresh_one_is(path, version):
    path.parent.mkdir()
    old = raw(path)
    migrate(old, version)
    if version:
        old.execute("INSERT INTO chat VALUES (1, 'Old', 1.0, 1.0, NULL, '{}', NULL, NULL)")
        old.execute(
            "INSERT INTO message VALUES (1, 1, NULL, 1, 'user', 'finished', '古い needle', 1.0)"
        )
        old.execute("UPDATE chat SET leaf = 1")
    old.close()
    upgraded = open_for_writing(path, pytest.fail)
    fresh = open_for_writing(path.with_name("fresh.sqlite3"), pytest.fail)
    assert schema(upgraded) == schema(fresh)
    upgraded.close()
    fresh.close()
    if version:
        with open_reader(path) as reader:
            assert texts_of(reader.path(1)) == ["古い needle"]
            assert [hit.title for hit in reader.search("need い")] == ["Old"]


def test_a_script_that_fails_leaves_the_version_before(path, monkeypatch):
    path.parent.mkdir()
    broken = (scripts()[0], "CREATE TABLE half (id); CREATE TABLE chat (id)")
    monkeypatch.setattr("mlxspec_app.store.database.scripts", lambda: broken)
    connection = raw(path)
    with pytest.raises(sqlite3.Error):
        migrate(connection)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert not [row for row in schema(connection) if row[1] == "half"]
    connection.close()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"{scripts()[0]}; PRAGMA user_version = 99", r"version 99 and this .* up to \d+: update"),
        ("CREATE TABLE bookmarks (url)", "a database of another program"),
    ],
)
def test_a_newer_store_and_one_of_another_program_are_refused_and_left_alone(path, script, reason):
    path.parent.mkdir()
    connection = raw(path)
    connection.executescript(script)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=reason):
        open_for_writing(path, pytest.fail)
    assert path.read_bytes() == before


# ---- damage --------------------------------------------------------------------------------


def overwrite(path, start, content):
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not a database at all" * 100),
        lambda path: overwrite(path, 0, b"\xff" * 100),
        lambda path: overwrite(path, 3 * PAGE, b"\xff" * 10 * PAGE),
        lambda path: path.write_bytes(path.read_bytes()[: 5 * PAGE]),
    ],
)
def test_a_damaged_store_is_set_aside_and_a_new_one_begun(path, damage):
    fill(path)
    damage(path)
    damaged = path.read_bytes()
    assert set_aside(path).read_bytes() == damaged


def test_all_files_of_a_damaged_store_that_is_in_use_are_set_aside(path):
    fill(path)
    running = open_writer(path)
    say(running, running.new_chat(), "the last message")
    overwrite(path, 3 * PAGE, b"\xff" * 10 * PAGE)
    set_aside(path)
    (log,) = path.parent.glob("chats-damaged-*-wal")
    assert b"the last message" in log.read_bytes()
    running.close()


def test_damage_twice_in_a_second_loses_neither_file(path):
    path.parent.mkdir()
    for number in range(2):
        path.write_bytes(b"no database %d" % number * 100)
        open_for_writing(path, lambda notice: None).close()
    kept = {aside.read_bytes()[:13] for aside in path.parent.glob("chats-damaged-*.sqlite3")}
    assert kept == {b"no database 0", b"no database 1"}


# ---- places that refuse --------------------------------------------------------------------


def test_a_folder_in_place_of_the_store_is_an_error_and_stays(path):
    path.mkdir(parents=True)
    with pytest.raises(StoreError):
        open_for_writing(path, pytest.fail)
    assert path.is_dir()


def test_a_path_with_odd_characters_works(tmp_path):
    path = tmp_path / "a b?c#d%20e" / "chats.sqlite3"
    open_for_writing(path, pytest.fail).close()
    assert path.exists()


# ---- several windows -----------------------------------------------------------------------


def test_nothing_comes_between_what_a_change_reads_and_what_it_writes(path):
    ours, theirs = open_writer(path), open_writer(path)
    theirs._connection.execute("PRAGMA busy_timeout = 0")
    with ours.transaction():
        assert ours.recent() == []
        with pytest.raises(StoreError, match="locked by another program"):
            theirs.new_chat("Theirs")
        ours.new_chat("Ours")
    theirs.new_chat("Theirs")
    assert [chat.title for chat in ours.recent()] == ["Theirs", "Ours"]
    ours.close()
    theirs.close()


def test_two_threads_that_open_a_new_store_at_once_both_can(path):
    failures = []

    def open_it():
        try:
            open_for_writing(path, failures.append).close()
        except StoreError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_what_the_checks_of_the_schema_let_through_is_read_as_missing(path):
    fill(path)
    connection = raw(path)
    connection.execute("UPDATE chat SET created = -9e18, updated = 1e300")
    connection.execute("UPDATE message SET created = 1e300")
    connection.execute(
        "INSERT INTO generation VALUES (2, 'm', 'd', '[1]', 'no digits', ?, NULL, '', '')",
        ('{"a": ' + "9" * 5000 + "}",),
    )
    connection.close()
    with open_reader(path) as reader:
        _, reply, *_ = messages_of(reader, 1)
        assert reply.generation.seed is None
        assert (reply.generation.settings, reply.generation.stats) == ({}, {})
        assert reader.recent()[0].changed == reader.search("message")[0].changed == 0.0
        assert reader.path(1)
