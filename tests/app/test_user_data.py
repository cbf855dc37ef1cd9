"""What is told of the store while there is a session, and after it is gone."""

import sqlite3
import threading
import time

import pytest

from mlxspec_app.store import database, thread
from mlxspec_app.store.database import explain
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.writer import Writer
from mlxspec_app.user_data import find_user_data
from tests.support.app_driver import chat
from tests.support.scripted_session import ScriptedSession
from tests.support.store_files import exchange

PATIENCE_S = 10


def told(session):
    return [notice.message for notice in session.drain()]


@pytest.fixture
def session():
    return ScriptedSession()


def test_what_goes_wrong_while_the_session_lasts_is_a_notice(tmp_path, session, capsys):
    (tmp_path / "in the way").write_text("")
    user_data = find_user_data(tmp_path / "in the way")
    user_data.store_chats_of(session)
    with pytest.raises(StoreError, match="chats cannot be saved"):
        user_data.store.submit(lambda recorder: None).result(20)
    (notice,) = told(session)
    assert "this chat is not saved" in notice
    user_data.close()
    assert capsys.readouterr().err == ""


def test_what_goes_wrong_while_the_store_is_closed_goes_to_stderr(
    tmp_path, session, capsys, monkeypatch
):
    user_data = find_user_data(tmp_path)
    user_data.store_chats_of(session)
    user_data.store.submit(lambda recorder: None).result(20)

    def refuse(*args, **options):
        raise StoreError("the disk is full")

    monkeypatch.setattr(Writer, "add_message", refuse)
    for event in exchange("Hello", "Hi"):
        user_data.record(event)
    user_data.store.submit(lambda recorder: None).result(20)
    assert "the chat continues" in told(session)[0]
    monkeypatch.setattr(Writer, "purge", refuse)
    user_data.close()
    error = capsys.readouterr().err
    assert "mlxspec: the last messages could not be written to the chat store" in error
    assert "mlxspec: the disk is full" in error
    assert told(session) == []


def test_a_sqlite_without_full_text_search_is_explained(tmp_path, session, monkeypatch):
    def lacks_fts5(connection):
        raise sqlite3.OperationalError("no such module: fts5")

    monkeypatch.setattr(database, "migrate", lacks_fts5)
    user_data = find_user_data(tmp_path)
    user_data.store_chats_of(session)
    with pytest.raises(StoreError, match="lacks full-text search"):
        user_data.store.submit(lambda recorder: None).result(20)
    assert "(FTS5)" in told(session)[0]
    user_data.close()


def test_another_error_of_sqlite_keeps_its_words():
    assert "no such table" in str(explain(sqlite3.OperationalError("no such table: x")))


async def test_what_the_store_says_is_shown_by_a_screen_that_draws_no_frames(tmp_path, monkeypatch):
    is_at_rest = threading.Event()

    def refuse(*_):
        is_at_rest.wait(PATIENCE_S)
        raise StoreError("the disk is full")

    monkeypatch.setattr(thread, "open_for_writing", refuse)
    user_data = find_user_data(tmp_path)
    user_data.stores_chats = True
    try:
        async with chat(user_data=user_data) as driver:
            await driver.pilot.pause(0.3)  # frames have stopped by now
            assert "the disk is full" not in driver.shown
            is_at_rest.set()
            deadline = time.monotonic() + PATIENCE_S
            while "! the disk is full; this chat is not saved" not in driver.shown:
                assert time.monotonic() < deadline, driver.shown
                await driver.pilot.pause(0.02)
    finally:
        is_at_rest.set()
        user_data.close()
