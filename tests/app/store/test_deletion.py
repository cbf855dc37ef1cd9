"""Forked chats, and chats that are deleted, had back, and removed for good."""

import pytest

from mlxspec_app.store.records import Generation
from tests.support.store_files import current, messages_of, open_writer, recent_titles, say, steps


@pytest.fixture
def writer(tmp_path):
    writer = open_writer(tmp_path / "chats.sqlite3")
    yield writer
    writer.close()


# ---- forks ---------------------------------------------------------------------------------


def test_a_fork_keeps_its_chat_and_how_each_reply_ended(writer):
    chat = writer.new_chat("Plans", "Be brief")
    for state, reason in (("finished", "length"), ("partial", "cancelled"), ("failed", None)):
        reply = writer.begin_reply(chat, writer.chat(chat).leaf, Generation("t", seed=3))
        writer.finish_reply(reply, state, reason)
    fork = writer.fork(reply)
    copies = writer.path(fork)
    assert [message.state for message in copies] == ["finished", "partial", "failed"]
    assert [c.generation for c in copies] == [m.generation for m in writer.path(chat)]
    copy = writer.chat(fork)
    assert (copy.title, copy.system) == ("Plans · fork", "Be brief")


# ---- deletion ------------------------------------------------------------------------------


def test_a_purge_removes_every_trace_of_a_chat(writer):
    chat = writer.new_chat()
    (turn,) = say(writer, chat, "Hello")
    writer.extend_reply(writer.begin_reply(chat, turn, Generation(trace="a.jsonl")), "Hi")
    writer.delete(chat)
    assert writer.purge() == ["a.jsonl"]
    connection = writer._connection
    for table in ("chat", "message", "piece", "generation", "search"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_trace_that_a_fork_refers_to_survives(writer):
    chat = writer.new_chat()
    reply = writer.begin_reply(chat, None, Generation(trace="a.jsonl"))
    writer.fork(reply)
    writer.delete(chat)
    assert writer.purge() == []


def test_a_chat_deleted_elsewhere_is_purged_after_a_day(tmp_path):
    path = tmp_path / "chats.sqlite3"
    writer = open_writer(path, steps(0))
    chat = writer.new_chat()
    writer.delete(chat)
    writer.close()
    for now, is_there in ((3_600, True), (90_000, False)):
        writer = open_writer(path, steps(now))
        writer.purge()
        assert bool(writer._rows("SELECT 1 FROM chat", ())) == is_there
        writer.close()


def test_what_is_said_in_a_deleted_chat_brings_it_back(writer, tmp_path):
    chat = writer.new_chat()
    other = open_writer(tmp_path / "chats.sqlite3")
    other.delete(chat)
    say(writer, chat, "Hello")
    assert other.purge() == []
    other.close()
    assert recent_titles(writer) == ["Hello"]


def test_turns_of_a_deleted_chat_are_not_offered_again(writer):
    kept, gone = writer.new_chat(), writer.new_chat()
    say(writer, kept, "Hello", "Hi")
    say(writer, gone, "Secret", "Hush")
    say(writer, kept, "Bye", "See you", "More")
    writer.delete(gone)
    assert writer.recent_turns() == ["Hello", "Bye", "More"]
    assert writer.recent_turns(2) == ["Bye", "More"]


def test_a_very_long_chat_can_be_read_and_deleted(writer):
    chat = writer.new_chat()
    with writer.transaction():
        say(writer, chat, *(f"message {number}" for number in range(1_500)))
    assert len(current(writer, chat)) == 1_500
    assert writer.recent()[0].note == "1500 messages"
    writer.delete(chat)
    writer.purge()
    assert messages_of(writer, chat) == []
