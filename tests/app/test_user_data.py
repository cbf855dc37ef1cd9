"""What is told of the store while there is a session, and after it is gone."""

import sqlite3

import pytest

from mlxspec_app.store import database
from mlxspec_app.store.database import explain
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.writer import Writer
from mlxspec_app.user_data import find_user_data
from tests.support.scripted_session import ScriptedSession
from tests.support.store_files import exchange


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
