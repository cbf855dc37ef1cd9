"""From the events of a session to the chat in the store."""

import pytest

from mlxspec.trace.events import (
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
from mlxspec_app.store.records import COMPARISON
from tests.support.paths import TRACES
from tests.support.store_files import (
    exchange,
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


def test_nothing_is_kept_before_something_is_said(recorder):
    record(recorder, SessionReady(), ChatCleared())
    assert recorder.chat is None
    assert recorder.writer.recent() == []


def test_a_reply_keeps_models_settings_seed_and_figures(recorder):
    record(recorder, exchange("Hello", "Hi", " there", seed=11))
    generation = path(recorder)[-1].generation
    assert (generation.target, generation.drafter, generation.seed) == ("target", "suffix", 11)
    assert generation.settings["device"] == "a device"
    assert generation.stats == {"generated_tokens": 2}
    assert generation.reason == "stop"


def test_text_held_back_to_the_end_belongs_to_the_reply(recorder):
    record(
        recorder,
        TurnStarted("user", "Hello"),
        GenerationStarted("t", "d"),
        round_of("Hi"),
        GenerationFinished(1.0, "length", " th"),
    )
    assert texts_of(path(recorder)) == ["Hello", "Hi th"]


def test_every_round_is_in_the_store_as_soon_as_it_was_applied(recorder, tmp_path):
    events = list(exchange("Hello", "one ", "two ", "three"))
    seen = []
    for event in events[:-1]:
        recorder.apply(event)
        if isinstance(event, PlainDecoded):
            seen.append((path(recorder)[-1].text, path(recorder)[-1].state))
    assert seen == [("one ", "partial"), ("one two ", "partial"), ("one two three", "partial")]


@pytest.mark.parametrize(
    ("end", "state", "reason", "error"),
    [
        (GenerationFinished(1.0, "cancelled"), "partial", "cancelled", ""),
        (GenerationFinished(1.0, "context"), "finished", "context", ""),
        (GenerationFailed(1.0, "out of memory"), "failed", None, "out of memory"),
    ],
)
def test_the_end_of_a_reply_decides_its_state(recorder, end, state, reason, error):
    started = [TurnStarted("user", "Hello"), GenerationStarted("t", "d"), round_of("Hi")]
    record(recorder, started, end)
    last = path(recorder)[-1]
    assert (last.text, last.state) == ("Hi", state)
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


def test_a_round_without_text_and_events_out_of_place_change_nothing(recorder):
    record(
        recorder,
        round_of("lost"),
        GenerationFinished(1.0, "stop"),
        GenerationFailed(1.0, "x"),
        ReplyDiscarded(),
        PrefillProgress(0.1, 1, 2),
        PlainDecoded(1, 0.1, (EmittedToken(1, "", "plain"),), 1.0, 1),
    )
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
    assert texts_of(path(recorder)) == texts_of(shown)
    assert [message.role for message in path(recorder)] == [message.role for message in shown]


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


def test_a_cleared_chat_is_followed_by_a_new_one(recorder):
    recorder.system = "Be brief"
    record(recorder, exchange("Hello", "Hi"), ChatCleared(), exchange("Other", "Yes"))
    assert [chat.title for chat in recorder.writer.recent()] == ["Other", "Hello"]
    assert recorder.writer.chat(recorder.chat).system == "Be brief"


def test_a_chat_that_was_opened_goes_on_with_its_system_prompt(recorder):
    record(recorder, TurnStarted("system", "Be brief"), exchange("Hello", "Hi"))
    there = opened(recorder, path(recorder)[-1], "Be brief")
    record(recorder, TurnStarted("system", "Be long"), ChatCleared(), exchange("Other", "Yes"))
    record(recorder, there, exchange("Bye", "Ciao"))
    assert texts_of(path(recorder)) == ["Hello", "Hi", "Bye", "Ciao"]
    assert recorder.system == "Be brief"


def test_a_reply_ends_where_it_began_even_if_another_chat_was_opened(recorder):
    record(recorder, exchange("Other", "Yes"))
    other = opened(recorder, path(recorder)[-1])
    recorder.new_chat()
    *begun, last, end = exchange("Hello", "Hi", " there")
    record(recorder, begun)
    here = recorder.chat
    record(recorder, other, last, end)
    assert texts_of(recorder.writer.path(here)) == ["Hello", "Hi there"]
    record(recorder, exchange("More", "Sure"))
    assert texts_of(path(recorder)) == ["Other", "Yes", "More", "Sure"]


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
    writer = open_writer(tmp_path / "chats.sqlite3")
    assert writer._rows("SELECT count(*) FROM piece", ()) == [(0,)]
    assert [hit.message for hit in writer.search("hi")] == [2]
    reply = writer.message(2)
    assert (reply.state, reply.generation.reason) == ("partial", "cancelled")
    writer.close()
