"""Sampling of the next replies: by a command for now, by the settings for good."""

from dataclasses import replace

import pytest

from mlxspec_app.commands import CommandError
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.sampling import SamplingSwitch
from mlxspec_app.settings.file import Settings
from tests.support.fake_page import FakePage
from tests.support.scripted_session import ScriptedSession


@pytest.fixture
def page():
    return FakePage()


@pytest.fixture
def session():
    return ScriptedSession()


@pytest.fixture
def sampling(session, page):
    return SamplingSwitch(Feed(session), page)


def refuse(name, value):
    raise ValueError("this cannot be")


def test_a_setting_is_adjusted_or_said(sampling, session, page):
    sampling.adjust("temp", "0.5")
    sampling.adjust("k", "")
    assert session.orders == [("adjust", "temp", "0.5")]
    assert page.told == ["temp is 0.5 from the next reply on", "k is 15; /settings shows all"]


def test_a_refusal_is_said_and_nothing_else(sampling, session, page):
    session.adjust = refuse
    with pytest.raises(CommandError, match="this cannot be"):
        sampling.adjust("temp", "9")
    assert page.told == []
    assert not sampling.draw_seed()
    assert page.told == ["this cannot be"]


def test_a_seed_is_drawn_anew_each_time(sampling, session):
    assert sampling.draw_seed()
    assert sampling.draw_seed()
    (_, name, first), (_, _, second) = session.orders
    assert name == "seed"
    assert first != second
    assert 0 <= int(first) < 2**32


def test_another_answer_takes_another_seed(sampling, session, page):
    session.adjustable = lambda: {"temp": "0.7", "seed": "7"}
    sampling.vary()
    ((_, name, seed),) = session.orders
    assert name == "seed"
    assert page.told == [f"seed {seed}"]


def test_a_seed_that_makes_no_difference_says_so(sampling, session, page):
    session.adjustable = lambda: {"temp": "0", "seed": "7"}
    sampling.use_seed("8")
    assert page.told == ["seed 8; it makes no difference at temperature 0"]


def test_where_no_seed_gives_another_answer_that_is_said(sampling, session, page):
    sampling.vary()
    assert session.orders == []
    assert page.told == ["temperature 0 writes the same text again; /temp 0.7 gives another answer"]


def test_a_recording_is_played_again_without_a_word(sampling, session, page):
    session.adjustable = dict
    sampling.vary()
    assert (session.orders, page.told) == ([], [])


def test_only_what_was_changed_for_good_is_adjusted_under_the_name_of_the_session(
    sampling, session, page
):
    before = Settings()
    chosen = {"temperature": 0.25, "max_tokens": 9}
    sampling.follow_settings(before, replace(before, ink="off", sampling=chosen))
    assert session.orders == [("adjust", "temp", "0.25"), ("adjust", "max", "9")]
    session.adjust = refuse
    sampling.follow_settings(before, replace(before, sampling=chosen))
    assert page.told == []  # a recording has nothing to adjust
