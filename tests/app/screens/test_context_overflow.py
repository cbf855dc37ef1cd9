"""A full context: which ways help, which one the settings take, and what each does."""

from dataclasses import replace

import pytest

from mlxspec.trace.events import GenerationFailed, GenerationFinished, TurnStarted
from mlxspec_app.conversation.events import (
    ContextFull,
    ModelChoice,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import ForgetOldest, Load, NewChat, Regenerate, Say
from mlxspec_app.screens.chat.context_full import ContextAnswer, ContextOverflow
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.settings.file import Settings
from tests.support.fake_page import FakePage
from tests.support.scripted_session import ScriptedSession

LOADED = ModelChoice("t", "pool")
EARLIER = (TurnStarted("user", "first"), GenerationFinished(1.0, "stop", "answer"))
REFUSED = (TurnStarted("user", "second"), GenerationFailed(0.0, "too long"), ContextFull(8))


class Overflow:
    """A chat whose turn was refused."""

    def __init__(self, *events, choice=LOADED, **chosen):
        self.page, self.session = FakePage(**chosen), ScriptedSession()
        self.feed = Feed(self.session, lambda order: None)
        self.feed.state = fold([SessionOpening("t", "d", choice), SessionReady(), *events])
        self.overflow = ContextOverflow(self.feed, self.page)

    @property
    def asked(self):
        """The ways of each question."""
        return [question.ways for question in self.page.app.opened]

    def refuse(self):
        self.overflow.handle(ContextFull(8))


def test_all_ways_help_where_earlier_turns_fill_the_context_and_no_answer_changes_nothing():
    full = Overflow(*EARLIER, *REFUSED)
    full.refuse()
    full.overflow.follow_answer(None)
    assert full.asked == [["drop", "rotate", "new"]]
    assert full.session.orders == []
    assert full.feed.state.phase == "ready"


def test_a_turn_that_is_too_long_alone_is_not_offered_a_new_chat_after_earlier_turns_either():
    full = Overflow(*EARLIER, *REFUSED, context_full="new")
    full.overflow.handle(ContextFull(8, fits_alone=False))
    assert full.asked == [["rotate"]]
    assert full.session.orders == []


@pytest.mark.parametrize("choice", [None, replace(LOADED, max_kv_size=8)])
def test_a_cache_that_rotates_or_cannot_be_had_is_not_offered(choice):
    assert Overflow(*EARLIER, *REFUSED, choice=choice).overflow.ways() == ["drop", "new"]
    hopeless = Overflow(*REFUSED, choice=choice)
    hopeless.refuse()
    assert hopeless.asked == []


@pytest.mark.parametrize(
    ("way", "orders"),
    [
        ("drop", [ForgetOldest(True), Regenerate()]),
        ("rotate", [Load(ModelChoice("t", "pool", 8)), Regenerate()]),
        ("new", [NewChat(), Say("second")]),
    ],
)
@pytest.mark.parametrize("is_for_good", [True, False])
def test_a_way_that_is_taken_has_the_turn_answered(way, orders, is_for_good):
    full = Overflow(*EARLIER, *REFUSED)
    full.overflow.follow_answer(ContextAnswer(way, is_for_good))
    assert full.session.orders == orders
    assert full.feed.state.phase == "busy"
    assert full.page.app.changes == ([("context_full", way)] if is_for_good else [])
    full.overflow.follow_settings(Settings(), Settings(ink="off"))
    assert full.session.orders == orders


def test_the_way_of_the_settings_is_taken_unasked_where_it_helps():
    full = Overflow(*EARLIER, *REFUSED, context_full="new")
    full.refuse()
    assert full.session.orders == [NewChat(), Say("second")]
    assert (full.asked, full.page.app.changes) == ([], [])
    alone = Overflow(*REFUSED, context_full="new")
    alone.refuse()
    assert alone.asked == [["rotate"]]


def test_what_was_tried_in_vain_is_not_offered_again():
    full = Overflow(*REFUSED)
    full.overflow.follow_answer(ContextAnswer("rotate", is_for_good=False))
    assert full.overflow.ways() == []


def test_the_session_is_told_when_the_settings_about_the_oldest_turns_change():
    overflow = Overflow()
    usual, drop = Settings(), Settings(context_full="drop")
    overflow.overflow.follow_settings(usual, replace(usual, ink="off"))
    assert overflow.session.orders == []
    overflow.overflow.follow_settings(usual, drop)
    overflow.overflow.follow_settings(drop, usual)
    assert overflow.session.orders == [ForgetOldest(True), ForgetOldest(False)]
