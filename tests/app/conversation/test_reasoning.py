"""Reasoning in a reply, folded to one line: nothing is lost, and tokens keep their numbers."""

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.trace.events import (
    Channel,
    EmittedToken,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TurnStarted,
)
from mlxspec_app.conversation.events import SessionOpening, SessionReady
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply, Span
from mlxspec_app.conversation.reasoning_fold import ReasoningFold, fold_words, reasoning_seconds
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.support.app_driver import running
from tests.support.scripted_session import ScriptedSession

PIECES = [
    ("<think>\n", "mark"),
    ("one and ", "reasoning"),
    ("one\n", "reasoning"),
    ("</think>", "mark"),
    ("\n\n", "answer"),
    ("two", "answer"),
    (" it is", "answer"),
]
LINE = "[thought for 4.0 s, 2 tokens; z shows it]"
BEGUN = [
    SessionOpening("t", "none"),
    SessionReady(),
    TurnStarted("user", "1+1?"),
    GenerationStarted("t", "none"),
    PrefillProgress(1.0, 3, 3),
]
ROUNDS = [
    PlainDecoded(n, n + 1.0, (EmittedToken(n, text, "plain", 0.9, None, channel),), 1.0, n)
    for n, (text, channel) in enumerate(PIECES, 1)
]
END = [GenerationFinished(9.0, "stop")]


def shown(reply, folded=None):
    folded = folded or ReasoningFold()
    folded.update(reply)
    return "".join(span.text for span in folded.shown)


def test_all_text_is_kept_with_its_channel():
    reply = fold([*BEGUN, *ROUNDS, GenerationFinished(9.0, "stop", "!")]).reply
    assert reply.text == "".join(text for text, _ in PIECES) + "!"
    assert [span.channel for span in reply.spans] == [*(name for _, name in PIECES), "answer"]
    assert reply.stats.reasoning_tokens == 2


def test_text_that_comes_with_the_end_of_cut_off_reasoning_belongs_to_it():
    found = fold([*BEGUN, *ROUNDS[:2], GenerationFinished(1.0, "cancelled", "...")]).reply
    assert [span.channel for span in found.spans] == ["mark", "reasoning", "reasoning"]


def test_reasoning_becomes_one_line_with_its_own_tokens_and_seconds():
    reply = fold([*BEGUN, *ROUNDS, *END]).reply
    assert shown(reply) == f"{LINE}\n\ntwo it is"
    assert fold_words(reply) in LINE
    assert reasoning_seconds(reply) == 4.0  # from the end of the prompt at 1 s to the mark at 5
    assert reply.text == "".join(text for text, _ in PIECES)


def test_it_is_seen_while_it_streams_and_folds_with_the_first_word_of_the_answer():
    folded = ReasoningFold()
    for num_rounds in range(6):
        reply = fold([*BEGUN, *ROUNDS[:num_rounds]]).reply
        assert shown(reply, folded) == "".join(text for text, _ in PIECES[:num_rounds])
    assert shown(fold([*BEGUN, *ROUNDS[:6]]).reply, folded) == f"{LINE}\n\ntwo"


def test_reasoning_without_an_answer_stays_in_view():
    reply = fold([*BEGUN, *ROUNDS[:3], *END]).reply
    assert shown(reply) == "<think>\none and one\n"


def test_a_reply_that_does_not_reason_is_shown_as_it_is():
    empty = [("<think>", "mark"), ("\n\n", "reasoning"), ("</think>", "mark"), ("yes", "answer")]
    for pieces in ([("a <think> b", "answer")], empty):
        reply = Reply(spans=[Span(text, channel=channel) for text, channel in pieces])
        assert shown(reply) == reply.text


pieces = st.lists(
    st.tuples(st.sampled_from(["", "\n", "a", " b\n"]), st.sampled_from(get_args(Channel))),
    max_size=12,
)


@settings(max_examples=20)
@given(pieces, st.lists(st.integers(0, 12), max_size=6))
def test_however_its_states_arrive_the_same_is_shown_and_every_span_keeps_its_number(pieces, steps):
    spans = [Span(text, channel=channel) for text, channel in pieces]
    folded = ReasoningFold()
    for length in (*steps, len(spans)):
        folded.update(Reply(spans=spans[:length]))
        assert len(folded.shown) == min(length, len(spans))
    fresh = ReasoningFold()
    fresh.update(Reply(spans=spans))
    words = [span.text for span in fresh.shown if span.channel == "answer" and span.text.strip()]
    assert [s.text for s in folded.shown if s.channel == "answer" and s.text.strip()] == words
    assert fresh.has_fold == folded.has_fold
    folded.toggle()
    folded.update(Reply(spans=spans))
    assert list(folded.shown) == spans


async def test_a_key_and_a_command_show_the_reasoning_and_fold_it_again():
    session = ScriptedSession(*BEGUN, *ROUNDS[5:], *END)
    async with running(session, size=(80, 24)) as driver:
        await driver.say("/reasoning")
        assert "this reply has no reasoning to show" in driver.shown
        session.news += [*BEGUN[2:], *ROUNDS, *END]
        await driver.settle()
        assert LINE in driver.shown
        assert "one and one" not in driver.shown
        await driver.say("/reasoning")
        assert "one and one" in driver.shown
        assert LINE not in driver.shown
        driver.screen.query_one(Transcript).focus()
        await driver.press("z")
        assert LINE in driver.shown
        await driver.press("l", "z")  # at a token, too
        assert "one and one" in driver.shown
