"""From the events of a session to the chat in the store, and what the screens ask of it."""

import pytest

from mlxspec.trace.events import (
    CostMeasured,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    SpeedupMeasured,
    TurnStarted,
)
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import (
    ChatCleared,
    ChatCut,
    ChatOpened,
    ReplyDiscarded,
    SessionReady,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.records import COMPARISON, Overview, Standing, Version
from mlxspec_app.text.chat_labels import label_of
from tests.support.paths import TRACES
from tests.support.store_files import (
    current,
    exchange,
    open_reader,
    open_recorder,
    open_writer,
    path,
    record,
    reply_events,
    round_of,
    texts_of,
)


def opened(recorder, leaf, system=None):
    """The event of a chat that is opened, with `leaf` for its last message."""
    return ChatOpened((), system, leaf.chat, leaf.id)


# ---- turns and replies ---------------------------------------------------------------------


def test_nothing_is_kept_before_something_is_said_nor_of_events_out_of_place(recorder):
    record(
        recorder,
        SessionReady(),
        ChatCleared(),
        round_of("lost"),
        GenerationFinished(1.0, "stop"),
        GenerationFailed(1.0, "x"),
        ReplyDiscarded(),
        PrefillProgress(0.1, 1, 2),
        PlainDecoded(1, 0.1, (EmittedToken(1, "", "plain"),), 1.0, 1),
    )
    assert recorder.chat is None
    assert recorder.writer.recent() == []


def test_a_reply_keeps_models_settings_seed_and_figures(recorder):
    record(recorder, exchange("Hello", "Hi", " there", seed=11))
    generation = path(recorder)[-1].generation
    assert (generation.target, generation.drafter, generation.seed) == ("target", "suffix", 11)
    assert generation.settings["device"] == "a device"
    assert generation.stats == {"generated_tokens": 2}
    assert generation.reason == "stop"


def test_every_round_is_on_the_disk_as_soon_as_it_was_applied(recorder, tmp_path):
    seen = []
    with open_reader(tmp_path / "chats.sqlite3") as reader:
        for event in list(exchange("Hello", "one ", "two ", "three"))[:-1]:
            recorder.apply(event)
            if isinstance(event, PlainDecoded):
                last = reader.path(recorder.chat)[-1]  # as it would be after a crash
                seen.append((last.text, last.state))
    assert seen == [("one ", "partial"), ("one two ", "partial"), ("one two three", "partial")]


@pytest.mark.parametrize(
    ("end", "text", "state", "reason", "error"),
    [
        (GenerationFinished(1.0, "cancelled"), "Hi", "partial", "cancelled", ""),
        (GenerationFinished(1.0, "context"), "Hi", "finished", "context", ""),
        (GenerationFinished(1.0, "length", " th"), "Hi th", "finished", "length", ""),
        (GenerationFailed(1.0, "out of memory"), "Hi", "failed", None, "out of memory"),
    ],
)
def test_the_end_of_a_reply_decides_its_state(recorder, end, text, state, reason, error):
    started = [TurnStarted("user", "Hello"), GenerationStarted("t", "d"), round_of("Hi")]
    record(recorder, started, end)
    last = path(recorder)[-1]
    assert (last.text, last.state) == (text, state)
    assert (last.generation.reason, last.generation.error) == (reason, error)


def test_a_reply_that_failed_before_it_began_is_kept_with_its_error(recorder):
    record(recorder, TurnStarted("user", "Hello"), GenerationFailed(0.0, "too long"))
    last = path(recorder)[-1]
    assert (last.role, last.text, last.state) == ("assistant", "", "failed")
    assert last.generation.error == "too long"


def test_a_comparison_belongs_to_the_reply_that_ended_last_and_to_none_while_another_is_written(
    recorder,
):
    compared = SpeedupMeasured(2.0, 11.5, 1900, (274, 3400), 40)
    record(recorder, exchange("One", "1"), TurnStarted("user", "Two"), GenerationStarted("t", "d"))
    record(recorder, compared, round_of("2"))
    assert COMPARISON not in path(recorder)[1].generation.stats
    record(recorder, GenerationFinished(1.0, "stop", ""), compared)
    first, second = path(recorder)[1::2]
    assert COMPARISON not in first.generation.stats
    assert second.generation.stats[COMPARISON]["speedup"] == 2.0


def test_a_ratio_that_comes_after_the_chat_was_deleted_is_dropped(recorder):
    record(recorder, exchange("Hello", "Hi"))
    recorder.writer.delete(recorder.chat)
    recorder.writer.purge()
    record(recorder, SpeedupMeasured(2.0, 11.5, 1900, (274, 3400), 40))
    assert recorder.writer.recent() == []


def test_a_system_prompt_goes_to_the_chat(recorder):
    record(recorder, TurnStarted("system", "Be brief"), exchange("Hello", "Hi"))
    assert recorder.writer.chat(recorder.chat).system == "Be brief"
    assert texts_of(path(recorder)) == ["Hello", "Hi"]
    record(recorder, TurnStarted("system", "Be long"))
    assert recorder.writer.chat(recorder.chat).system == "Be long"


@pytest.mark.parametrize("name", sorted(trace.name for trace in TRACES.glob("*.jsonl")))
def test_the_store_holds_what_the_screen_shows(recorder, name):
    events = list(read_trace(TRACES / name))
    record(recorder, events)
    shown = [message for message in fold(events).messages if message.role != "system"]
    assert [(m.role, m.text) for m in path(recorder)] == [(m.role, m.text) for m in shown]


# ---- branches ------------------------------------------------------------------------------


@pytest.mark.parametrize("says_again", [True, False])
def test_a_regenerated_reply_is_a_sibling(recorder, says_again):
    record(recorder, exchange("Hello", "Hi"), ReplyDiscarded())
    assert texts_of(path(recorder)) == ["Hello", "Hi"]  # until the next one begins
    record(recorder, exchange("Hello", "Hey") if says_again else reply_events("Hey"))
    messages = path(recorder)
    assert texts_of(messages) == ["Hello", "Hey"]
    assert texts_of(recorder.writer.siblings(messages[-1].id)) == ["Hi", "Hey"]
    record(recorder, exchange("Bye", "Ciao"))
    assert texts_of(path(recorder)) == ["Hello", "Hey", "Bye", "Ciao"]


def test_an_edited_turn_takes_the_place_of_an_earlier_one(recorder):
    record(recorder, exchange("One", "1"), exchange("Two", "2"), exchange("Three", "3"))
    second = path(recorder)[2]
    record(recorder, ChatCut(1))
    assert texts_of(recorder.path()) == ["One", "1"]
    record(recorder, exchange("Deux", "2!"))
    assert texts_of(path(recorder)) == ["One", "1", "Deux", "2!"]
    assert texts_of(recorder.writer.siblings(second.id)) == ["Two", "Deux"]


def test_a_branch_that_was_opened_goes_on(recorder):
    record(recorder, exchange("Hello", "Hi"), ReplyDiscarded(), exchange("Hello", "Hey"))
    first = recorder.writer.siblings(path(recorder)[-1].id)[0]
    record(recorder, opened(recorder, first), exchange("Bye", "Ciao"))
    assert texts_of(path(recorder)) == ["Hello", "Hi", "Bye", "Ciao"]


# ---- chats ---------------------------------------------------------------------------------


def test_a_cleared_chat_is_followed_by_a_new_one_under_the_system_prompt(recorder):
    recorder.system = "Be brief"
    record(recorder, exchange("Hello", "Hi"), ChatCleared(), exchange("Other", "Yes"))
    assert [chat.title for chat in recorder.writer.recent()] == ["Other", "Hello"]
    assert recorder.writer.chat(recorder.chat).system == "Be brief"


def test_a_reply_ends_where_it_began_even_if_another_chat_was_opened(recorder):
    record(recorder, exchange("Other", "Yes"))
    other = opened(recorder, path(recorder)[-1], "Be brief")
    recorder.new_chat()
    *begun, last, end = exchange("Hello", "Hi", " there")
    record(recorder, begun)
    here = recorder.chat
    record(recorder, other, last, end)
    assert texts_of(recorder.writer.path(here)) == ["Hello", "Hi there"]
    record(recorder, exchange("More", "Sure"))
    assert texts_of(path(recorder)) == ["Other", "Yes", "More", "Sure"]
    assert recorder.system == "Be brief"


def test_a_chat_that_another_window_removed_is_replaced_by_a_new_one(recorder, tmp_path):
    *begun, last, end = exchange("Hello", "Hi", " there")
    record(recorder, begun)
    other = open_writer(tmp_path / "chats.sqlite3")
    other.delete(recorder.chat)
    other.purge()
    record(recorder, last, end, exchange("Retry", "Yes"))
    assert texts_of(path(recorder)) == ["Retry", "Yes"]
    other.close()


def test_what_is_open_when_the_app_ends_is_settled(tmp_path):
    recorder = open_recorder(tmp_path / "chats.sqlite3")
    record(recorder, list(exchange("Hello", "Hi"))[:-1])
    recorder.close()
    with open_reader(tmp_path / "chats.sqlite3") as reader:
        assert reader._rows("SELECT count(*) FROM piece", ()) == [(0,)]
        assert [hit.message for hit in reader.search("hi")] == [2]
        reply = reader.message(2)
        assert (reply.state, reply.generation.reason) == ("partial", "cancelled")


# ---- what the screens ask ------------------------------------------------------------------


def test_an_empty_store_has_neither_chats_nor_a_standing(recorder):
    assert recorder.writer.overview() == Overview(0)
    assert recorder.standing() == Standing()
    assert recorder.find_last() is None


def test_the_last_chat_is_another_one_than_that_on_the_screen(recorder):
    record(recorder, exchange("One", "1"), ChatCleared(), exchange("Two", "2"))
    assert recorder.find_last().chat.title == "One"
    recorder.new_chat()
    assert recorder.find_last().chat.title == "Two"
    seen = recorder.writer.overview()
    assert (seen.num_chats, seen.last.title) == (2, "Two")


def test_the_standing_names_the_chat_and_the_versions_of_its_messages(recorder):
    record(recorder, exchange("One", "1"), ReplyDiscarded())
    assert recorder.standing().versions == {}  # of a reply that is about to be written again
    record(recorder, reply_events("I"))
    record(recorder, exchange("Two", "2"), ChatCut(1), exchange("Deux", "2"))
    there = recorder.standing()
    assert (there.chat, there.title) == (recorder.chat, "One")
    assert there.versions == {1: Version(2, 2), 2: Version(2, 2)}


def test_a_message_is_found_on_its_branch_and_one_of_this_branch_without_leaving_it(recorder):
    record(recorder, exchange("One", "1"), exchange("Two", "2"), ChatCut(1), exchange("Zwei", "3"))
    for words in ("two", "one"):
        (hit,) = recorder.writer.search(words)
        found = recorder.writer.find_chat(hit.chat, hit.message)
        assert texts_of(found.path) == ["One", "1", "Two", "2"]


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
    assert current(recorder.writer, recorder.chat) == ["One", "1", "Two", "2"]


def test_what_the_store_does_not_hold_cannot_be_forked(recorder):
    with pytest.raises(GoneError, match="not in the store"):
        recorder.fork_at(0)
    with pytest.raises(GoneError, match="no messages"):
        recorder.writer.fork_chat(recorder.writer.new_chat())


# ---- traces --------------------------------------------------------------------------------


def traces_of(recorder, folder):
    """The events in the trace of each reply on the screen."""
    names = [message.generation.trace for message in path(recorder)[1::2]]
    return [list(read_trace(folder / "traces" / name)) for name in names]


def test_every_reply_has_a_trace_and_what_is_measured_after_it_belongs_to_that(recorder, tmp_path):
    cost = CostMeasured(9.5, 300, (1, 2), (20.0, 21.0))
    first, second = list(exchange("Hello", "Hi")), list(exchange("Bye", "Ciao"))
    record(recorder, cost, first, cost, second)
    assert traces_of(recorder, tmp_path) == [[*first, cost], second]


def test_a_regenerated_reply_has_its_turn_in_its_trace(recorder, tmp_path):
    record(recorder, exchange("Hello", "Hi"), ReplyDiscarded(), reply_events("Hey"))
    said_again = [TurnStarted("user", "Hello"), *reply_events("Hey")]
    assert traces_of(recorder, tmp_path) == [said_again]


def test_traces_go_with_their_chat(tmp_path):
    recorder = open_recorder(tmp_path / "chats.sqlite3")
    record(recorder, exchange("Hello", "Hi"))
    deleted = recorder.chat
    record(recorder, ChatCleared(), exchange("Other", "Yes"))
    kept = path(recorder)[-1].generation.trace
    recorder.writer.delete(deleted)
    recorder.close()
    assert [trace.name for trace in (tmp_path / "traces").iterdir()] == [kept]


def test_rows_go_with_their_chat_at_once_and_again_at_the_end(tmp_path):
    rows = tmp_path / "prefixes"
    recorder = open_recorder(tmp_path / "chats.sqlite3", rows=rows)
    record(recorder, exchange("Hello", "Hi"), exchange("Now", "Later"))
    deleted = recorder.chat
    record(recorder, ChatCleared(), exchange("Other", "Yes"))

    def write():
        rows.mkdir(exist_ok=True)
        for text in ("Hello", "Now", "Other"):
            (rows / f"{label_of(text)}-9.safetensors").touch()

    left = [f"{label_of('Other')}-9.safetensors"]
    write()
    recorder.delete(deleted)
    assert [path.name for path in rows.iterdir()] == left
    write()  # as an engine does that was about to
    recorder.close()
    assert [path.name for path in rows.iterdir()] == left


def test_a_folder_that_takes_no_traces_costs_only_them(tmp_path):
    (tmp_path / "traces").write_text("in the way")
    notices = []
    recorder = open_recorder(tmp_path / "chats.sqlite3", notices.append)
    record(recorder, exchange("Hello", "Hi"), exchange("Bye", "Ciao"))
    assert texts_of(path(recorder)) == ["Hello", "Hi", "Bye", "Ciao"]
    (notice,) = notices
    assert "the trace of this reply ends here" in notice
    recorder.close()
