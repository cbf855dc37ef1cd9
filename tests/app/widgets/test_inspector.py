"""Pointing at single tokens: where the cursor goes, and what is told of a token."""

import math
from dataclasses import replace

import pytest

from mlxspec.trace.events import (
    Alternative,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    PlainDecoded,
)
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.events import AlternativesFound
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply, Span
from mlxspec_app.conversation.orders import FindAlternatives
from mlxspec_app.conversation.tokens import (
    TokenCursor,
    facts_of,
    last_token,
    moved,
)
from mlxspec_app.conversation.views import XRAY
from mlxspec_app.widgets.chat.inspector import Inspector
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.support.answering_replay import AnsweringReplay
from tests.support.app_driver import Clock, chat, running
from tests.traces import make_fake


class AskedReplay(AnsweringReplay):
    """A recording that knows what else a model could have written."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked = []

    def send(self, order):
        if isinstance(order, FindAlternatives):
            self.asked.append((order.turn, order.position))
        else:
            super().send(order)


def a_reply(*rounds):
    """A reply with so many tokens per round."""
    reply = Reply()
    for number, count in enumerate(rounds, 1):
        reply.spans += [Span("x", "accepted", number) for _ in range(count)]
    return reply


TWO = [a_reply(2, 1, 3), a_reply(), a_reply(1, 2)]


@pytest.mark.parametrize(
    ("unit", "start", "step", "end"),
    [
        ("token", (0, 5), 1, (2, 0)),  # over the ends of replies
        ("token", (2, 0), -1, (0, 5)),
        ("token", (2, 2), 1, (2, 2)),
        ("token", (0, 0), -1, (0, 0)),
        ("round", (0, 0), -1, (0, 0)),
        ("round", (2, 1), 1, (2, 1)),
        ("message", (2, 0), 1, (2, 0)),
        ("round", (0, 1), 1, (0, 2)),  # to the first token of a round
        ("round", (0, 4), -1, (0, 2)),
        ("round", (0, 4), 1, (2, 0)),
        ("message", (0, 4), 1, (2, 0)),  # to the first token of a reply
        ("message", (2, 2), -1, (0, 0)),
        ("message", (0, 4), -1, (0, 0)),
    ],
)
def test_the_cursor_goes_by_token_round_and_reply(unit, start, step, end):
    assert last_token(TWO) == TokenCursor(2, 2)
    assert moved(TWO, TokenCursor(*start), unit, step) == TokenCursor(*end)


NODES = (
    DraftNode(1, 0, 5, " a", 0.5, "table"),
    DraftNode(2, 0, 6, " b", 0.4, "eagle3"),
    DraftNode(3, 2, 7, " c", 0.3, "eagle3"),
)
TOKENS = (EmittedToken(6, " b", "accepted", 0.6, 0.4), EmittedToken(8, " d", "corrected", 0.7))
EVENTS = [
    PlainDecoded(1, 0.1, (EmittedToken(1, "", "plain"),), 5.0, 9),
    DraftProposed(2, 0.1, 4, NODES, 1.5),
    DraftVerified(2, 0.2, (2,), TOKENS, 5.0, 2, 10),
]


def test_a_token_is_known_with_its_rivals_and_text_without_a_token_has_no_facts():
    (reply,) = fold(EVENTS).messages
    reply.spans.append(Span("rest"))
    first, second, none = (facts_of(reply, index) for index in range(3))
    assert (first.text, first.round, first.depth, first.source) == (" b", 2, 1, "eagle3")
    assert [rival.label for rival in first.rivals] == ["a"]
    assert (second.text, second.depth, second.source) == (" d", 2, "")
    assert [rival.label for rival in second.rivals] == ["c"]
    assert none is None


def test_every_span_of_a_recorded_reply_has_its_own_token():
    replies = [m for m in fold(make_fake.chat()).messages if isinstance(m, Reply)]
    for reply in replies:
        for index, span in enumerate(reply.spans):
            facts = facts_of(reply, index)
            assert (facts.text, facts.round, facts.token.kind) == (span.text, span.round, span.kind)
            assert facts.source == span.source


async def test_tab_leads_to_the_tokens_and_back():
    async with chat() as driver:
        await driver.say("hello")
        await driver.press("tab", "left")
        assert driver.screen.query_one(Inspector).display
        assert "the model's probability" in driver.shown
        assert "the model's own word" in driver.shown
        assert "target p" not in driver.shown
        await driver.press("f2")
        assert "target p" in driver.shown
        reply = driver.screen.state.reply
        message = list(driver.screen.query(TokenMessage))[-1]
        assert message.pointed == len(reply.spans) - 1
        await driver.press("left", "left")
        assert message.pointed == len(reply.spans) - 3
        await driver.press("tab")
        assert driver.screen.focused is driver.screen.query_one(Prompt)
        assert not driver.screen.query_one(Inspector).display
        assert message.pointed is None


async def test_the_message_pointed_at_is_in_view_and_is_what_keys_copy_and_turn(monkeypatch):
    copied = []
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(MlxspecApp, "copy_to_clipboard", lambda app, text: copied.append(text))
    async with chat(size=(100, 16)) as driver:
        await driver.say("one")
        await driver.say("two")
        transcript = driver.screen.query_one(Transcript)
        asked, prose, again, _ = driver.screen.state.messages
        await driver.press("tab", "left", "y", "c", "m")
        assert not driver.screen.query(TokenMessage).last().is_rendered
        seen = []
        for key in ("k", "y", "k", "y", "c", "k", "k", "j"):
            await driver.press(key)
            seen.append(transcript.pointed_message)
        assert seen == [again, again, prose, prose, prose, asked, asked, prose]
        assert [text[:9] for text in copied] == ["Here is a", "def merge", "two", "Speculati"]
        widget = list(driver.screen.query(TokenMessage))[1]
        marked = "".join(s.text for s in widget.render_line(0) if s.style and s.style.reverse)
        assert (widget.pointed, marked) == (0, prose.spans[0].text)
        assert transcript.scroll_y <= widget.virtual_region.y < transcript.scroll_y + 16


FOUND = (Alternative(5, " sea", 0.5, 0.75), Alternative(6, " lake", 0.25, 0.25))


async def test_enter_asks_the_model_what_else_it_could_have_written():
    clock = Clock()
    session = AskedReplay(make_fake.chat(), speed=math.inf, clock=clock)
    async with running(session, clock, size=(140, 40)) as driver:
        await driver.say("one")
        await driver.say("two")
        await driver.press("tab", "k", "k", "k", "right", "enter")
        assert session.asked == [(0, 1)]
        assert "asking the model" in driver.shown
        session.news.append(AlternativesFound(0, 1, FOUND))
        await driver.settle()
        shown = " ".join(driver.shown.split())
        assert "model sea .50 lake .25" in shown
        assert "drawn sea .75 lake .25" in shown
        assert driver.screen.state.phase == "ready"
        await driver.press("right")
        assert "lake" not in driver.shown
        await driver.press("enter", "right")
        session.news.append(AlternativesFound(*session.asked[-1], FOUND))  # too late
        await driver.settle()
        assert "lake" not in driver.shown


async def test_a_click_in_the_x_ray_asks_too():
    async with chat(size=(140, 40), view="xray") as driver:
        await driver.say("one")
        message = driver.screen.query(TokenMessage).last()
        await driver.pilot.click(message, offset=(4, 0))
        await driver.settle()
        assert "this is a recording: no model is here to ask" in driver.shown
        await driver.press("right")
        assert "this is a recording" not in driver.shown
        await driver.press("enter")
        assert "this is a recording: no model is here to ask" in driver.shown


async def test_the_same_probabilities_twice_are_shown_once():
    same = (Alternative(5, " sea", 0.5, 0.5),)
    inspector = Inspector()
    inspector.facts = facts_of(fold(make_fake.chat()).reply, 0)
    inspector._others = AlternativesFound(0, 0, same)
    assert "drawn" not in inspector.render().plain


async def test_the_name_of_a_drafter_is_text_beside_its_token():
    inspector = Inspector()
    inspector._view = XRAY
    inspector.facts = replace(facts_of(fold(make_fake.chat()).reply, 0), source="\x1b[31mred")
    assert ", by ␛[31mred" in inspector.render().plain
