"""Other models: named, picked, or the same ones once more."""

import pytest

from mlxspec_app.commands import CommandError
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.model_switch import ModelSwitch
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.conversation.session import ModelChoice, SessionOpening, SessionReady
from tests.support.fake_page import FakePage
from tests.support.scripted_session import ScriptedSession

NOW = ModelChoice("qwen", "pool", 64)


@pytest.fixture
def page():
    return FakePage()


@pytest.fixture
def feed():
    feed = Feed(ScriptedSession())
    feed.state = fold([SessionOpening("t", "d", NOW), SessionReady()])
    return feed


def test_what_is_named_is_loaded_and_the_rest_stays(feed, page):
    switch = ModelSwitch(feed, page, lambda part: False)
    switch.choose_model("llama")
    switch.choose_model("default")
    switch.choose_drafter("suffix")
    switch.load_again()
    assert feed.session.orders == [
        ("load", ModelChoice("llama", "auto", 64)),
        ("load", ModelChoice("", "auto", 64)),
        ("load", ModelChoice("qwen", "suffix", 64)),
        ("load", NOW),
    ]
    assert page.num_orders == 4
    assert page.told == []


@pytest.mark.parametrize("name", ["sufix", "pool,suffix", "a/b/c"])
def test_what_cannot_be_a_drafter_reloads_nothing(feed, page, name):
    with pytest.raises(CommandError, match=r"is not known|stands alone"):
        ModelSwitch(feed, page, lambda part: False).choose_drafter(name)
    assert feed.session.orders == []
    assert page.num_orders == 0


def test_without_a_name_the_user_picks_or_is_told_to_name_one(feed, page):
    asked, answers = [], [True, False]
    switch = ModelSwitch(feed, page, lambda part: asked.append(part) or answers.pop(0))
    switch.choose_model()
    assert page.told == []
    switch.choose_drafter()
    assert asked == ["models", "drafters"]
    assert page.told == ["name the model: /model NAME, /draft NAME"]


def test_nothing_picked_loads_nothing(feed, page):
    ModelSwitch(feed, page, lambda part: True).load(None)
    assert feed.session.orders == []


def test_a_reply_that_is_being_written_ends_first_and_that_is_said(feed, page):
    feed.note(OrderGiven())
    ModelSwitch(feed, page, lambda part: True).load_again()
    assert feed.session.orders == [("load", NOW)]
    assert page.told == ["the models will be loaded after this reply"]


def test_models_can_be_chosen_where_any_were(feed, page):
    switch = ModelSwitch(feed, page, lambda part: True)
    assert switch.can_choose
    feed.state = fold([SessionOpening("t", "d"), SessionReady()])
    assert not switch.can_choose
