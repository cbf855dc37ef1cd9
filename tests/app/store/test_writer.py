"""Chats, branches, forks and deletion, read back from the file."""

import pytest

from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.records import Generation
from tests.support.store_files import (
    current,
    edit,
    messages_of,
    open_writer,
    recent_titles,
    say,
    steps,
)

# ---- chats ---------------------------------------------------------------------------------


def test_the_end_of_a_reply_moves_its_chat_up(writer):
    first, second = writer.new_chat("first"), writer.new_chat("second")
    (turn,) = say(writer, first, "Hello")
    reply = writer.begin_reply(first, turn, Generation())
    say(writer, second, "Hi")
    assert recent_titles(writer) == ["second", "first"]
    writer.finish_reply(reply, "finished", "stop")
    assert recent_titles(writer) == ["first", "second"]
    assert [entry.chat for entry in writer.recent(1)] == [first]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("\n  Write a   sort\nin Rust", "Write a sort"),
        ("word " * 50, "word " * 11 + "word…"),
    ],
)
def test_an_untitled_chat_is_called_by_its_first_message(writer, text, title):
    chat = writer.new_chat()
    say(writer, chat, text, "Sure", "Another question")
    assert writer.chat(chat).title == title
    writer.rename(chat, "  Ours ")
    say(writer, chat, "More")
    assert writer.chat(chat).title == "Ours"


@pytest.mark.parametrize("jump", [-3 * 86_400.0, 3 * 86_400.0])
def test_a_clock_that_is_set_changes_no_order(tmp_path, jump):
    times = iter([1e9, *(1e9 + jump + second for second in range(50)), *(1e9 + 60,) * 50])
    writer = open_writer(tmp_path / "chats.sqlite3", lambda: next(times))
    for title in ("first", "second", "third"):
        say(writer, writer.new_chat(), title, "reply")
    assert recent_titles(writer) == ["third", "second", "first"]
    for _ in range(50):
        writer.rename(1, "first")  # until the clock is right again
    say(writer, 2, "second")
    assert recent_titles(writer) == ["second", "first", "third"]
    writer.close()


def test_changes_at_one_reading_of_the_clock_keep_their_order(tmp_path):
    writer = open_writer(tmp_path / "chats.sqlite3", lambda: 1e9)
    first, _, third = (writer.new_chat(title) for title in ("first", "second", "third"))
    say(writer, first, "Hello")
    assert recent_titles(writer) == ["first", "third", "second"]
    writer.rename(third, "third")
    assert recent_titles(writer) == ["third", "first", "second"]
    writer.close()


# ---- messages ------------------------------------------------------------------------------


def test_a_message_cannot_have_a_parent_in_another_chat(writer):
    here, there = writer.new_chat(), writer.new_chat()
    (message,) = say(writer, here, "One")
    with pytest.raises(GoneError):
        writer.add_message(there, message, "user", "Two")
    assert current(writer, here) == ["One"]
    assert current(writer, there) == []


def test_siblings_are_the_versions_of_a_message_in_its_chat(writer):
    chat, other = writer.new_chat(), writer.new_chat()
    first, _ = say(writer, chat, "One", "Good\nmorning")
    say(writer, other, "One")
    edited = edit(writer, first, "Uno")
    assert [message.id for message in writer.siblings(first)] == [first, edited]
    assert (writer.path(chat)[-1].sibling, writer.message(first).num_siblings) == (2, 2)
    assert writer.path(other)[0].num_siblings == 1


def test_a_reply_grows_and_says_how_it_came_about(writer):
    chat = writer.new_chat()
    (turn,) = say(writer, chat, "Hello")
    started = Generation("SmolLM2", "suffix", {"cache": "full"}, 2**64 - 1, trace="a.jsonl")
    reply = writer.begin_reply(chat, turn, started)
    for piece in ("Hi", " ", "there"):
        writer.extend_reply(reply, piece)
    growing = writer.message(reply)
    assert (growing.text, growing.state, growing.generation) == ("Hi there", "partial", started)
    (summary,) = writer.recent()
    assert (summary.note, summary.snippet[0].text) == ("2 messages", "Hi there")
    writer.finish_reply(reply, "finished", "stop", {"rounds": 3, "rate": float("nan")})
    done = writer.message(reply)
    assert (done.text, done.state) == ("Hi there", "finished")
    assert done.generation.reason == "stop"
    assert done.generation.stats == {"rounds": 3, "rate": None}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("世界 🙂", "世界 🙂"),
        ("a\x00b", "a\x00b"),
        ("tab\tand\x1b[31m", "tab\tand\x1b[31m"),
        ("a\ud83db", "a\\ud83db"),
    ],
)
def test_any_text_is_kept_as_it_was(writer, text, kept):
    chat = writer.new_chat()
    reply = writer.begin_reply(chat, None, Generation())
    writer.extend_reply(reply, text)
    writer.fold_pieces()  # as another process does that starts meanwhile
    writer.extend_reply(reply, text)
    assert current(writer, chat) == [kept * 2]
    writer.finish_reply(reply, "finished")
    assert current(writer, chat) == [kept * 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda writer: writer.rename(9, "x"),
        lambda writer: writer.delete(9),
        lambda writer: edit(writer, 9, "x"),
        lambda writer: writer.fork(9),
        lambda writer: writer.switch_to(9),
        lambda writer: writer.add_message(9, None, "user", "x"),
        lambda writer: writer.path(9),
        lambda writer: writer.extend_reply(9, "x"),
    ],
)
def test_what_is_not_there_is_said_to_be_gone(writer, change):
    with pytest.raises(GoneError, match="no longer in the store"):
        change(writer)


def test_a_change_that_fails_in_the_middle_leaves_nothing_behind(writer):
    chat = writer.new_chat()
    with pytest.raises(GoneError), writer.transaction():
        edit(writer, say(writer, chat, "Hello")[0] + 1, "Hi")
    assert current(writer, chat) == []
    say(writer, chat, "Again")
    assert current(writer, chat) == ["Again"]


# ---- forks and deletion --------------------------------------------------------------------


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


def test_a_purge_removes_every_trace_of_a_chat(writer):
    chat = writer.new_chat()
    (turn,) = say(writer, chat, "Hello")
    writer.extend_reply(writer.begin_reply(chat, turn, Generation(trace="a.jsonl")), "Hi")
    writer.delete(chat)
    assert writer.purge() == ["a.jsonl"]
    for table in ("chat", "message", "piece", "generation", "search"):
        assert writer._rows(f"SELECT count(*) FROM {table}", ()) == [(0,)]


def test_a_trace_that_a_fork_refers_to_survives(writer):
    chat = writer.new_chat()
    writer.fork(writer.begin_reply(chat, None, Generation(trace="a.jsonl")))
    writer.delete(chat)
    assert writer.purge() == []


def test_a_chat_deleted_elsewhere_is_purged_after_a_day(tmp_path):
    path = tmp_path / "chats.sqlite3"
    writer = open_writer(path, steps(0))
    writer.delete(writer.new_chat())
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
