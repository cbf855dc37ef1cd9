"""Branch from here with this token: a reply is written anew from one of its places on."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import (
    Alternative,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TokensKept,
    TurnStarted,
)
from mlxspec_app.conversation.events import AlternativesFound, ChatCut, ReplyDiscarded
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Branch, FindAlternatives
from mlxspec_app.conversation.tokens import facts_of
from mlxspec_app.conversation.views import VIEWS
from mlxspec_app.export import film, html, markdown, svg
from mlxspec_app.export.recording import Recording
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.timeline import Timeline
from mlxspec_app.sessions.engine_session import EngineSession
from mlxspec_app.widgets.chat.inspector import Inspector
from tests.support.adversaries import RandomTrees
from tests.support.app_driver import running
from tests.support.app_live import FakeModels
from tests.support.scripted_session import ScriptedSession
from tests.support.tiny import make_engine, tiny_model
from tests.support.toy_chat import ToyChat
from tests.support.user_data_files import kept_chat, press, rest

MODEL = tiny_model()
LETTERS = SamplingParams(logit_bias={20: -100.0, 21: -100.0, 22: -100.0, 23: -100.0})
PARAMS = GenerationParams(max_tokens=10, sampling=LETTERS)
PATIENCE_S = 20

EVENTS = [
    TurnStarted("user", "hi"),
    GenerationStarted("t", "suffix"),
    TokensKept(
        0.0,
        (
            EmittedToken(1, "Once", "kept"),
            EmittedToken(2, "", "kept"),
            EmittedToken(3, " a", "kept"),
        ),
    ),
    PrefillProgress(0.1, 12, 12),
    PlainDecoded(1, 0.2, (EmittedToken(4, " sea", "plain", 0.5),), 5.0, 13),
    PlainDecoded(2, 0.3, (EmittedToken(5, " was", "plain", 0.5),), 5.0, 14),
    GenerationFinished(0.3, "length"),
]


def open_toy(choice, on_progress):
    return Conversation(make_engine(MODEL, RandomTrees(24), tokenizer=ToyChat()))


@asynccontextmanager
async def live_chat(folder, *, continues=False):
    """A chat with a tiny model in a thread of its own, kept in a folder."""
    live = EngineSession(FakeModels(open_toy), PARAMS)
    try:
        async with kept_chat(folder, live, continues=continues, size=(80, 24)) as driver:
            yield driver
    finally:
        live.close()


async def until(driver, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition(driver.screen.state):
        assert time.monotonic() < deadline, driver.shown
        await driver.settle()
        await asyncio.sleep(0.002)
    await rest(driver)


def is_answered(state):
    return state.phase == "ready" and state.reply is not None and state.reply.is_finished


async def look_and_pick(driver, steps_back):
    """Point at a token from the end of the last reply, and mark another one in its place."""
    await press(driver, "tab", *["left"] * (1 + steps_back), "enter")
    inspector = driver.screen.query_one(Inspector)
    await until(driver, lambda state: inspector._others is not None and state.phase == "ready")
    await press(driver, "down")
    while inspector.chosen.token in (inspector.facts.token.token, 20, 21, 22, 23):
        await press(driver, "down")
    return inspector.facts.index, inspector.chosen.token


async def test_a_reply_branches_where_one_chooses_and_again_after_the_chat_is_reopened(tmp_path):
    async with live_chat(tmp_path) as driver:
        await driver.say("abc")
        await until(driver, is_answered)
        await driver.say("de")
        await until(driver, is_answered)
        first = driver.screen.state.reply
        place, token = await look_and_pick(driver, 4)
        assert "Enter: branch from here with this token" in driver.shown
        await press(driver, "enter")
        await until(driver, lambda state: state.reply is not first and is_answered(state))
        reply = driver.screen.state.reply
        assert reply.tokens[: place + 1] == [*first.tokens[:place], token]
        assert len(reply.tokens) == place + 1 + 10  # only new tokens count against the limit
        assert [token.token for token in reply.kept.emit] == reply.tokens[: place + 1]
        assert [message.role for message in driver.screen.state.messages][-1:] == ["assistant"]
        await until(driver, lambda state: "< 2/2" in driver.shown)  # a sibling of the first one
        branch = reply.text

    async with live_chat(tmp_path, continues=True) as driver:
        await driver.say("/view xray")
        await until(driver, is_answered)
        restored = driver.screen.state.reply
        assert (restored.text, restored.stats.kept_tokens) == (branch, place + 1)
        assert not restored.is_copy
        again, token = await look_and_pick(driver, 1)
        await press(driver, "enter")
        await until(driver, lambda state: state.reply is not restored and is_answered(state))
        assert driver.screen.state.reply.tokens[: again + 1] == [*restored.tokens[:again], token]
        await until(driver, lambda state: "< 3/3" in driver.shown)


async def test_a_reply_that_met_its_limit_goes_on_as_the_same_message(tmp_path):
    async with live_chat(tmp_path) as driver:
        await driver.say("abc")
        await until(driver, is_answered)
        first = driver.screen.state.reply
        assert "met its token limit: /continue goes on" in driver.shown
        await driver.say("/continue")
        await until(driver, lambda state: state.reply is not first and is_answered(state))
        roles = [message.role for message in driver.screen.state.messages]
        assert roles == ["user", "assistant"]
        assert driver.screen.state.reply.tokens[:10] == first.tokens
        assert len(driver.screen.state.reply.tokens) == 20


@pytest.mark.parametrize(
    ("events", "is_cut"),
    [
        (EVENTS, True),
        (EVENTS[:-1], False),
        ([*EVENTS[:-1], GenerationFinished(0.3, "cancelled")], True),
        ([*EVENTS[:-1], GenerationFinished(0.3, "stop")], False),
        ([*EVENTS[:-1], GenerationFinished(0.3, "repeating")], False),
        ([*EVENTS[:-1], GenerationFailed(0.3, "out of memory")], True),
        ([*EVENTS[:2], GenerationFailed(0.3, "no room")], False),
        ([*EVENTS, TurnStarted("system", "be kind")], True),
        ([*EVENTS, TurnStarted("user", "more")], False),
    ],
)
def test_only_the_last_reply_is_cut_and_only_where_it_did_not_end_by_itself(events, is_cut):
    assert (fold(events).cut_reply is not None) == is_cut


FOUND = (Alternative(5, " sea", 0.5, 0.75), Alternative(6, " lake", 0.25, 0.25))


@asynccontextmanager
async def found():
    """A chat that points at the first token the model wrote, with others in its place."""
    session = ScriptedSession(*EVENTS)
    async with running(session, size=(80, 24)) as driver:
        await press(driver, "tab", "left", "enter")
        assert session.orders[-1] == FindAlternatives(0, 4)
        session.news.append(AlternativesFound(0, 4, FOUND))
        await driver.settle()
        yield driver, session


@pytest.mark.parametrize("view", VIEWS)
async def test_arrows_mark_a_token_in_every_view_and_enter_branches_there(view):
    async with found() as (driver, session):
        driver.screen.enter(f"/view {view.name}")
        await press(driver, "down", "down", "up")
        assert driver.screen.query_one(Inspector).chosen == FOUND[0]
        await press(driver, "enter")
        assert session.orders[-1] == Branch(0, 4, 5)
        session.news.append(AlternativesFound(0, 4, message="the grammar forbids token 5"))
        await driver.settle()
        assert "the grammar forbids token 5" in driver.shown


async def test_a_click_marks_a_token_and_a_second_one_branches_unless_a_reply_is_written():
    async with found() as (driver, session):
        await press(driver, "f2")
        row = next(n for n, row in enumerate(driver.shown.split("\n")) if "lake" in row)
        column = driver.shown.split("\n")[row].index("lake")
        for _ in range(2):
            await driver.pilot.click(offset=(column, row))
            await driver.settle()
        assert session.orders[-1] == Branch(0, 4, 6)
        session.orders.clear()
        session.news += [TurnStarted("user", "more"), GenerationStarted("t", "suffix")]
        await driver.settle()
        await press(driver, "enter")
        assert "Esc stops it, then try again" in driver.shown
        assert not any(isinstance(order, Branch) for order in session.orders)


def test_kept_tokens_can_be_pointed_at_and_are_in_no_figure():
    (_, reply) = fold(EVENTS).messages
    assert [facts_of(reply, span).index for span in range(4)] == [0, 2, 3, 4]
    assert [facts_of(reply, span).token.kind for span in range(3)] == ["kept", "kept", "plain"]
    assert (reply.stats.kept_tokens, reply.stats.generated_tokens) == (3, 2)
    assert reply.stats.kinds == {"plain": 2}
    assert reply.pace.totals == [1, 2]


def test_what_was_kept_is_no_copy():
    long = tuple(EmittedToken(n, "x", "kept") for n in range(40))
    first = [
        GenerationStarted("t", "suffix"),
        *(PlainDecoded(n, 0.1, (EmittedToken(n, "x", "plain"),), 1.0, n) for n in range(50)),
        GenerationFinished(1.0, "length"),
    ]
    state = fold(first)
    branch = [GenerationStarted("t", "suffix"), TokensKept(0.0, long)]
    other = PlainDecoded(1, 0.1, (EmittedToken(99, "y", "plain"),), 1.0, 41)
    assert fold([*branch, other], state).reply.num_copied == 0


def test_a_branch_of_an_earlier_reply_forgets_what_followed_even_behind_a_new_system_prompt():
    state = fold(
        [*EVENTS, TurnStarted("user", "more"), *EVENTS[1:], TurnStarted("system", "be kind")]
    )
    fold([ChatCut(1), ReplyDiscarded(), *EVENTS], state)
    assert [message.role for message in state.messages] == ["user", "assistant"]
    fold([TurnStarted("system", "be kind"), ReplyDiscarded(), *EVENTS], state)
    assert [message.role for message in state.messages] == ["user", "system", "assistant"]


def test_a_replay_shows_the_kept_text_before_the_first_round():
    events = list(events_of(fold(EVENTS)))
    assert events == EVENTS
    timeline = Timeline(events)
    assert [moment.phase for moment in timeline.moments][:4] == ["prefill"] * 4
    assert len(timeline.rounds) == 2


@pytest.mark.parametrize(
    "exporter", [svg.animation, film.render, html.render, markdown.render, svg.picture]
)
def test_every_export_has_the_kept_text_and_those_with_an_x_ray_say_what_it_is(exporter):
    written = exporter(Recording.of("t", EVENTS))
    assert all(word in written for word in ("Once", "sea"))
    assert ("kept" in written) == (exporter in (html.render, markdown.render))
