"""The feed of a session: news go to the state first, then to the listeners."""

import pytest

from mlxspec.trace.events import GenerationFinished, GenerationStarted, TurnStarted
from mlxspec_app.conversation.events import SessionOpening, SessionReady
from mlxspec_app.conversation.orders import Say
from mlxspec_app.screens.conversation.feed import Feed
from tests.support.scripted_session import ScriptedSession
from tests.support.store_files import round_of


@pytest.fixture
def session():
    return ScriptedSession()


def test_listeners_hear_every_event_in_turn_with_a_state_that_knows_it(session):
    feed, heard = Feed(session, print), []
    feed.listen(
        lambda event: heard.append(("first", event, feed.state.phase)),
        lambda event: heard.append(("second", event, feed.state.phase)),
    )
    session.news = [SessionOpening("t"), SessionReady()]
    feed.update()
    assert [(name, phase) for name, _, phase in heard] == [
        ("first", "loading"),
        ("second", "loading"),
        ("first", "ready"),
        ("second", "ready"),
    ]


def test_news_tell_a_new_phase_and_a_page_that_fills(session):
    feed = Feed(session, print)
    session.news = [SessionReady()]
    assert feed.update()[:3] == (True, True, False)
    session.news = [TurnStarted("user", "hi"), GenerationStarted("t", "d")]
    assert feed.update()[:3] == (True, True, True)
    session.news = [round_of("x")]
    assert feed.update()[:3] == (True, False, False)


def test_only_an_idle_session_with_nothing_to_tell_is_over(session):
    feed = Feed(session, print)
    session.busy = False
    assert not feed.update().is_over  # it loads, and will say so
    session.news = [SessionReady(), TurnStarted("user", "hi"), GenerationFinished(1.0, "stop")]
    assert not feed.update().is_over
    assert feed.update().is_over
    session.busy = True
    assert not feed.update().is_over


def test_an_order_changes_the_state_before_the_session_reports(session):
    told = []
    feed = Feed(session, lambda order: told.append((order, feed.state.phase, list(session.orders))))
    session.news = [SessionReady()]
    feed.update()
    feed.send(Say("hi"))
    assert told == [(Say("hi"), "busy", [Say("hi")])]


def test_a_message_that_is_not_pointed_at_stands_for_the_last_one(session):
    feed = Feed(session, print)
    session.news = [
        TurnStarted("system", "be brief"),
        TurnStarted("user", "a"),
        TurnStarted("user", "b"),
    ]
    feed.update()
    assert [feed.index_of(message) for message in (*feed.state.messages, None)] == [1, 0, 1, 1]
