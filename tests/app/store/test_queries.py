"""What the screens ask the store."""

import pytest

from mlxspec.trace.events import GenerationStarted, TurnStarted
from mlxspec_app.conversation.events import ChatCleared, ChatCut, ReplyDiscarded
from mlxspec_app.store.database import present
from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.queries import (
    find_chat,
    find_last,
    find_version,
    fork_at,
    fork_chat,
    overview,
    standing,
)
from mlxspec_app.store.recorder import Recorder
from mlxspec_app.store.records import Overview, Standing, Version
from tests.support.store_files import exchange, open_writer, record, reply_events, texts_of


@pytest.fixture
def recorder(tmp_path):
    recorder = Recorder(open_writer(tmp_path / "chats.sqlite3"))
    yield recorder
    recorder.close()


def test_an_empty_store_has_neither_chats_nor_a_standing(recorder):
    assert overview(recorder) == Overview(0)
    assert standing(recorder) == Standing()
    assert find_last(recorder) is None


def test_the_overview_counts_chats_and_names_the_last(recorder):
    record(recorder, exchange("One", "1"), ChatCleared(), exchange("Two", "2"))
    seen = overview(recorder)
    assert (seen.num_chats, seen.last.title, seen.is_cut_off) == (2, "Two", False)


@pytest.mark.parametrize(("is_closed", "is_cut_off"), [(False, True), (True, False)])
def test_a_reply_that_nobody_ended_was_cut_off(tmp_path, is_closed, is_cut_off):
    first = Recorder(open_writer(tmp_path / "chats.sqlite3"))
    record(first, list(exchange("One", "1"))[:-1])
    if is_closed:
        first.close()
    else:
        first.writer.close()  # as a process does that is killed
    second = Recorder(open_writer(tmp_path / "chats.sqlite3"))
    assert overview(second).is_cut_off is is_cut_off
    second.close()


def test_a_turn_that_was_never_answered_is_no_reply_cut_off(recorder):
    record(recorder, TurnStarted("user", "One"))
    assert not overview(recorder).is_cut_off


def test_the_standing_names_the_chat_and_the_versions_of_its_messages(recorder):
    record(recorder, exchange("One", "1"), ReplyDiscarded(), reply_events("I"))
    record(recorder, exchange("Two", "2"), ChatCut(1), exchange("Deux", "2"))
    there = standing(recorder)
    assert (there.chat, there.title) == (recorder.chat, "One")
    assert there.versions == {1: Version(2, 2), 2: Version(2, 2)}


def test_a_reply_that_is_about_to_be_written_again_has_no_standing(recorder):
    record(recorder, exchange("One", "1"), ReplyDiscarded())
    assert standing(recorder).versions == {}
    record(recorder, GenerationStarted("t", "d"))
    assert standing(recorder).versions == {1: Version(2, 2)}


def test_a_message_off_the_path_is_found_on_its_branch(recorder):
    record(recorder, exchange("One", "1"), exchange("Two", "2"), ChatCut(1), exchange("Zwei", "3"))
    hit = recorder.writer.search("two")[0]
    found = find_chat(recorder, hit.chat, hit.message)
    assert texts_of(found.path) == ["One", "1", "Two", "2"]


def test_a_message_on_the_path_is_found_without_leaving_the_branch(recorder):
    record(recorder, exchange("One", "1"), exchange("Two", "2"), ChatCut(1), exchange("Zwei", "3"))
    second = recorder.writer.search("two")[0]
    find_chat(recorder, second.chat, second.message)
    first = recorder.writer.search("one")[0]
    assert texts_of(find_chat(recorder, first.chat, first.message).path)[2] == "Two"


def test_the_last_chat_is_another_one_than_that_on_the_screen(recorder):
    record(recorder, exchange("One", "1"), ChatCleared(), exchange("Two", "2"))
    assert find_last(recorder).chat.title == "One"
    recorder.new_chat()
    assert find_last(recorder).chat.title == "Two"


def test_the_versions_of_a_message_are_found_one_after_another(recorder):
    record(recorder, exchange("One", "1"), ChatCut(0), exchange("Un", "2"))
    assert find_version(recorder, 0, 1) is None
    assert texts_of(find_version(recorder, 0, -1).path) == ["One", "1"]


def test_a_fork_is_a_chat_of_its_own_with_a_title_of_its_own(recorder):
    record(recorder, exchange("One", "1"), exchange("Two", "2"))
    fork = fork_at(recorder, 1)
    assert texts_of(fork.path) == ["One", "1"]
    assert fork.chat.title == "One · fork"
    again = fork_chat(recorder, fork.chat.id)
    assert recorder.writer.chat(again).title == "One · fork"
    assert texts_of(recorder.writer.path(recorder.chat)) == ["One", "1", "Two", "2"]


def test_what_the_store_does_not_hold_cannot_be_forked(recorder):
    with pytest.raises(GoneError, match="not in the store"):
        fork_at(recorder, 0)
    with pytest.raises(GoneError, match="no messages"):
        fork_chat(recorder, recorder.writer.new_chat())


def test_a_reply_is_told_of_once_and_stays_cut_off(tmp_path):
    path = tmp_path / "chats.sqlite3"
    first = Recorder(open_writer(path))
    record(first, list(exchange("One", "1"))[:-1])
    first.writer.close()
    for is_cut_off in (True, False):
        later = Recorder(open_writer(path))
        assert overview(later).is_cut_off is is_cut_off
        later.close()
    last = open_writer(path)
    assert last.message(2).generation.reason == "lost"
    last.close()


def test_a_reply_that_another_process_may_be_writing_is_not_called_cut_off(tmp_path):
    path = tmp_path / "chats.sqlite3"
    theirs = Recorder(open_writer(path))
    record(theirs, list(exchange("One", "1"))[:-1])
    with present(path) as is_first, present(path) as is_second:
        assert (is_first, is_second) == (True, False)
        ours = Recorder(open_writer(path), is_alone=is_second)
        assert not overview(ours).is_cut_off
        ours.close()
    assert theirs.writer.message(2).generation.reason is None
    with present(path) as is_alone:
        assert is_alone
    theirs.writer.close()
