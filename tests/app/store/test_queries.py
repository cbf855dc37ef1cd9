"""What the screens ask the store."""

import pytest

from mlxspec.trace.events import GenerationStarted
from mlxspec_app.conversation.events import ChatCleared, ChatCut, ReplyDiscarded
from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.records import Overview, Standing, Version
from tests.support.store_files import exchange, record, reply_events, texts_of


def test_an_empty_store_has_neither_chats_nor_a_standing(recorder):
    assert recorder.writer.overview() == Overview(0)
    assert recorder.standing() == Standing()
    assert recorder.find_last() is None


def test_the_overview_counts_chats_and_names_the_last(recorder):
    record(recorder, exchange("One", "1"), ChatCleared(), exchange("Two", "2"))
    seen = recorder.writer.overview()
    assert (seen.num_chats, seen.last.title) == (2, "Two")


def test_the_standing_names_the_chat_and_the_versions_of_its_messages(recorder):
    record(recorder, exchange("One", "1"), ReplyDiscarded(), reply_events("I"))
    record(recorder, exchange("Two", "2"), ChatCut(1), exchange("Deux", "2"))
    there = recorder.standing()
    assert (there.chat, there.title) == (recorder.chat, "One")
    assert there.versions == {1: Version(2, 2), 2: Version(2, 2)}


def test_a_reply_that_is_about_to_be_written_again_has_no_standing(recorder):
    record(recorder, exchange("One", "1"), ReplyDiscarded())
    assert recorder.standing().versions == {}
    record(recorder, GenerationStarted("t", "d"))
    assert recorder.standing().versions == {1: Version(2, 2)}


def test_a_message_off_the_path_is_found_on_its_branch(recorder):
    record(recorder, exchange("One", "1"), exchange("Two", "2"), ChatCut(1), exchange("Zwei", "3"))
    hit = recorder.writer.search("two")[0]
    found = recorder.writer.find_chat(hit.chat, hit.message)
    assert texts_of(found.path) == ["One", "1", "Two", "2"]


def test_a_message_on_the_path_is_found_without_leaving_the_branch(recorder):
    record(recorder, exchange("One", "1"), exchange("Two", "2"), ChatCut(1), exchange("Zwei", "3"))
    second = recorder.writer.search("two")[0]
    recorder.writer.find_chat(second.chat, second.message)
    first = recorder.writer.search("one")[0]
    assert texts_of(recorder.writer.find_chat(first.chat, first.message).path)[2] == "Two"


def test_the_last_chat_is_another_one_than_that_on_the_screen(recorder):
    record(recorder, exchange("One", "1"), ChatCleared(), exchange("Two", "2"))
    assert recorder.find_last().chat.title == "One"
    recorder.new_chat()
    assert recorder.find_last().chat.title == "Two"


def test_the_versions_of_a_message_are_found_one_after_another(recorder):
    record(recorder, exchange("One", "1"), ChatCut(0), exchange("Un", "2"))
    assert recorder.find_version(0, 1) is None
    assert texts_of(recorder.find_version(0, -1).path) == ["One", "1"]


def test_a_fork_is_a_chat_of_its_own_with_a_title_of_its_own(recorder):
    record(recorder, exchange("One", "1"), exchange("Two", "2"))
    fork = recorder.fork_at(1)
    assert texts_of(fork.path) == ["One", "1"]
    assert fork.chat.title == "One · fork"
    again = recorder.writer.fork_chat(fork.chat.id)
    assert recorder.writer.chat(again).title == "One · fork"
    assert texts_of(recorder.writer.path(recorder.chat)) == ["One", "1", "Two", "2"]


def test_what_the_store_does_not_hold_cannot_be_forked(recorder):
    with pytest.raises(GoneError, match="not in the store"):
        recorder.fork_at(0)
    with pytest.raises(GoneError, match="no messages"):
        recorder.writer.fork_chat(recorder.writer.new_chat())
