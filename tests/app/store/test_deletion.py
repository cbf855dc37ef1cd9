"""Forked chats, and chats that are deleted, had back, and removed for good."""

import pytest

from mlxspec_app.store.records import Generation
from tests.support.store_files import current, open_writer, recent_titles, say, steps


@pytest.fixture
def writer(tmp_path):
    writer = open_writer(tmp_path / "chats.sqlite3")
    yield writer
    writer.close()


# ---- forks ---------------------------------------------------------------------------------


def test_a_fork_is_a_copy_up_to_a_message(writer):
    chat = writer.new_chat("Plans", "Be brief", {"a": 1})
    (turn,) = say(writer, chat, "One")
    reply = writer.begin_reply(chat, turn, Generation("target", seed=3))
    writer.extend_reply(reply, "Two")
    writer.finish_reply(reply, "finished", "stop")
    writer.add_message(chat, reply, "user", "Three")
    fork = writer.fork(reply)
    assert current(writer, fork) == ["One", "Two"]
    assert writer.reader.path(fork)[-1].generation == writer.reader.message(reply).generation
    copy = writer.reader.chat(fork)
    assert (copy.title, copy.system, copy.settings) == ("Plans", "Be brief", {"a": 1})


def test_a_fork_keeps_how_each_reply_ended(writer):
    chat = writer.new_chat()
    for state, reason in (("finished", "length"), ("partial", "cancelled"), ("failed", None)):
        reply = writer.begin_reply(chat, writer.reader.chat(chat).leaf, Generation())
        writer.finish_reply(reply, state, reason)
    copies = writer.reader.path(writer.fork(reply))
    assert [message.state for message in copies] == ["finished", "partial", "failed"]
    assert [message.generation.reason for message in copies] == ["length", "cancelled", None]


def test_a_fork_and_its_source_go_their_own_ways(writer):
    chat = writer.new_chat()
    first, _ = say(writer, chat, "One", "Two")
    fork = writer.fork(first)
    say(writer, fork, "Other")
    assert current(writer, chat) == ["One", "Two"]
    assert current(writer, fork) == ["One", "Other"]


# ---- deletion ------------------------------------------------------------------------------


def test_a_deleted_chat_is_hidden_and_can_be_had_back(writer):
    chat = writer.new_chat()
    say(writer, chat, "Hello")
    writer.bin.delete(chat)
    assert recent_titles(writer) == []
    writer.bin.undelete(chat)
    assert writer.bin.purge() == []
    assert current(writer, chat) == ["Hello"]


def test_a_purge_removes_every_trace_of_a_chat(writer):
    chat = writer.new_chat()
    (turn,) = say(writer, chat, "Hello")
    writer.extend_reply(writer.begin_reply(chat, turn, Generation(trace="a.jsonl")), "Hi")
    writer.bin.delete(chat)
    assert writer.bin.purge() == ["a.jsonl"]
    connection = writer.reader._connection
    for table in ("chat", "message", "piece", "generation", "search"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_trace_that_a_fork_refers_to_survives(writer):
    chat = writer.new_chat()
    reply = writer.begin_reply(chat, None, Generation(trace="a.jsonl"))
    writer.fork(reply)
    writer.bin.delete(chat)
    assert writer.bin.purge() == []


def test_a_chat_deleted_elsewhere_is_purged_after_a_day(tmp_path):
    path = tmp_path / "chats.sqlite3"
    writer = open_writer(path, steps(0))
    chat = writer.new_chat()
    writer.bin.delete(chat)
    writer.close()
    for now, is_there in ((3_600, True), (90_000, False)):
        writer = open_writer(path, steps(now))
        writer.bin.purge()
        assert bool(writer.reader._rows("SELECT 1 FROM chat", ())) == is_there
        writer.close()


def test_what_is_said_in_a_deleted_chat_brings_it_back(writer, tmp_path):
    chat = writer.new_chat()
    other = open_writer(tmp_path / "chats.sqlite3")
    other.bin.delete(chat)
    say(writer, chat, "Hello")
    assert other.bin.purge() == []
    other.close()
    assert recent_titles(writer) == ["Hello"]


def test_turns_of_a_deleted_chat_are_not_offered_again(writer):
    kept, gone = writer.new_chat(), writer.new_chat()
    say(writer, kept, "Hello", "Hi")
    say(writer, gone, "Secret", "Hush")
    say(writer, kept, "Bye", "See you", "More")
    writer.bin.delete(gone)
    assert writer.reader.recent_turns() == ["Hello", "Bye", "More"]
    assert writer.reader.recent_turns(2) == ["Bye", "More"]


def test_a_very_long_chat_can_be_read_and_deleted(writer):
    chat = writer.new_chat()
    with writer.transaction():
        say(writer, chat, *(f"message {number}" for number in range(1_500)))
    assert len(current(writer, chat)) == 1_500
    assert writer.reader.recent()[0].num_messages == 1_500
    writer.bin.delete(chat)
    writer.bin.purge()
    assert writer.reader.messages(chat) == []
