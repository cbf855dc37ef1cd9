"""Chats, branches, forks and deletion, read back from the file."""

import sqlite3

import pytest

from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.records import Generation
from tests.support.store_files import current, edit, open_writer, recent_titles, say


@pytest.fixture
def writer(tmp_path):
    writer = open_writer(tmp_path / "chats.sqlite3")
    yield writer
    writer.close()


# ---- chats ---------------------------------------------------------------------------------


def test_a_chat_keeps_its_system_prompt(writer):
    chat = writer.new_chat("Plans", "Be brief")
    kept = writer.chat(chat)
    assert (kept.title, kept.system) == ("Plans", "Be brief")
    writer.set_system(chat, None)
    assert writer.chat(chat).system is None


def test_the_chat_said_in_last_is_listed_first(writer):
    first, _ = writer.new_chat("first"), writer.new_chat("second")
    assert recent_titles(writer) == ["second", "first"]
    say(writer, first, "Hello")
    assert recent_titles(writer) == ["first", "second"]
    assert [entry.chat for entry in writer.recent(1)] == [first]


def test_the_end_of_a_reply_moves_its_chat_up(writer):
    first, second = writer.new_chat("first"), writer.new_chat("second")
    (turn,) = say(writer, first, "Hello")
    reply = writer.begin_reply(first, turn, Generation())
    say(writer, second, "Hi")
    assert recent_titles(writer) == ["second", "first"]
    writer.finish_reply(reply, "finished", "stop")
    assert recent_titles(writer) == ["first", "second"]


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


def test_the_list_shows_a_reply_that_is_being_written(writer):
    chat = writer.new_chat()
    (turn,) = say(writer, chat, "Hello")
    reply = writer.begin_reply(chat, turn, Generation())
    writer.extend_reply(reply, "Hi")
    writer.extend_reply(reply, " there")
    (summary,) = writer.recent()
    assert (summary.note, summary.snippet[0].text) == ("2 messages", "Hi there")


# ---- branches ------------------------------------------------------------------------------


def test_siblings_of_another_chat_do_not_count(writer):
    for _ in range(2):
        chat = writer.new_chat()
        say(writer, chat, "One")
    (message,) = writer.path(chat)
    assert message.num_siblings == 1


def test_a_message_cannot_have_a_parent_in_another_chat(writer):
    here, there = writer.new_chat(), writer.new_chat()
    (message,) = say(writer, here, "One")
    with pytest.raises(GoneError):
        writer.add_message(there, message, "user", "Two")
    assert current(writer, here) == ["One"]
    assert current(writer, there) == []


def test_the_schema_refuses_a_parent_younger_than_its_child(tmp_path):
    path = tmp_path / "chats.sqlite3"
    writer = open_writer(path)
    chat = writer.new_chat()
    first, second = say(writer, chat, "One", "Two")
    connection = writer._connection
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("UPDATE message SET parent = ? WHERE id = ?", (second, first))
    writer.close()


def test_siblings_are_the_versions_of_a_message(writer):
    chat = writer.new_chat()
    first, _ = say(writer, chat, "One", "Good\nmorning")
    edited = edit(writer, first, "Uno")
    assert [message.id for message in writer.siblings(first)] == [first, edited]
    assert (writer.path(chat)[-1].sibling, writer.message(first).num_siblings) == (2, 2)


# ---- replies -------------------------------------------------------------------------------


def test_a_reply_grows_and_says_how_it_came_about(writer):
    chat = writer.new_chat()
    (turn,) = say(writer, chat, "Hello")
    started = Generation("SmolLM2", "suffix", {"cache": "full"}, 2**64 - 1, trace="a.jsonl")
    reply = writer.begin_reply(chat, turn, started)
    for piece in ("Hi", " ", "there"):
        writer.extend_reply(reply, piece)
    growing = writer.message(reply)
    assert (growing.text, growing.state, growing.generation) == ("Hi there", "partial", started)
    writer.finish_reply(reply, "finished", "stop", {"rounds": 3, "rate": float("nan")})
    done = writer.message(reply)
    assert (done.text, done.state) == ("Hi there", "finished")
    assert done.generation.reason == "stop"
    assert done.generation.stats == {"rounds": 3, "rate": None}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        *(
            (text, text)
            for text in ("世界 🙂", "a\x00b", "tab\tand\x1b[31m", "'; DROP TABLE chat; --")
        ),
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


# ---- what cannot be done --------------------------------------------------------------------


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
