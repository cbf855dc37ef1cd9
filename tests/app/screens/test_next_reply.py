"""What writes the next reply: other models, another seed, other settings."""

from dataclasses import replace

import pytest

from mlxspec_app.commands import CommandError
from mlxspec_app.conversation.events import ModelChoice, SessionOpening, SessionReady
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Load, Regenerate, Say
from mlxspec_app.screens.chat.next_reply import NextReply
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.settings.file import Settings
from tests.support.fake_page import FakePage
from tests.support.scripted_session import ScriptedSession
from tests.support.store_files import exchange

NOW = ModelChoice("qwen", "pool", 64)


@pytest.fixture
def page():
    return FakePage()


@pytest.fixture
def session():
    return ScriptedSession()


@pytest.fixture
def feed(session):
    feed = Feed(session, lambda order: None)
    feed.state = fold([SessionOpening("t", "d", NOW), SessionReady()])
    return feed


@pytest.fixture
def sampling(feed, page):
    return NextReply(feed, page, lambda part: True)


def test_what_is_named_is_loaded_and_the_rest_stays(feed, page):
    switch = NextReply(feed, page, lambda part: False)
    switch.choose_model("llama")
    switch.choose_model("default")
    switch.choose_drafter("suffix")
    switch.load(NOW)
    assert feed.session.orders == [
        Load(ModelChoice("llama", "auto", 64)),
        Load(ModelChoice("", "auto", 64)),
        Load(ModelChoice("qwen", "suffix", 64)),
        Load(NOW),
    ]
    assert page.told == []


@pytest.mark.parametrize("name", ["sufix", "pool,suffix", "a/b/c"])
def test_what_cannot_be_a_drafter_reloads_nothing(feed, page, name):
    with pytest.raises(CommandError, match=r"is not known|stands alone"):
        NextReply(feed, page, lambda part: False).choose_drafter(name)
    assert feed.session.orders == []


def test_without_a_name_the_user_picks_or_is_told_to_name_one(feed, page):
    asked, answers = [], [True, False]
    switch = NextReply(feed, page, lambda part: asked.append(part) or answers.pop(0))
    switch.choose_model()
    assert page.told == []
    switch.choose_drafter()
    assert asked == ["models", "drafters"]
    assert page.told == ["name the model: /model NAME, /draft NAME"]


def test_nothing_picked_loads_nothing(feed, page):
    NextReply(feed, page, lambda part: True).load(None)
    assert feed.session.orders == []


def test_a_reply_that_is_being_written_ends_first_and_that_is_said(feed, page):
    feed.send(Say("hi"))
    NextReply(feed, page, lambda part: True).load(NOW)
    assert feed.session.orders[1:] == [Load(NOW)]
    assert page.told == ["the models will be loaded after this reply"]


def refuse(name, value):
    raise ValueError("this cannot be")


def test_a_setting_is_adjusted_or_said(sampling, session, page):
    sampling.adjust("temp", "0.5")
    sampling.adjust("k", "")
    assert session.orders == [("adjust", "temp", "0.5")]
    assert page.told == ["temp is 0.5 from the next reply on", "k is 15; /settings shows all"]


def test_a_refusal_is_said_and_nothing_else(sampling, session, page):
    session.settings.adjust = refuse
    with pytest.raises(CommandError, match="this cannot be"):
        sampling.adjust("temp", "9")
    assert page.told == []
    assert not sampling._draw_seed()
    assert page.told == ["this cannot be"]


def test_a_seed_is_drawn_anew_each_time(sampling, session):
    assert sampling._draw_seed()
    assert sampling._draw_seed()
    (_, name, first), (_, _, second) = session.orders
    assert name == "seed"
    assert first != second
    assert 0 <= int(first) < 2**32


def test_another_answer_takes_another_seed(sampling, session, page):
    session.settings.adjustable = lambda: {"temp": "0.7", "seed": "7"}
    sampling._vary_seed()
    ((_, name, seed),) = session.orders
    assert name == "seed"
    assert page.told == [f"seed {seed}"]


def test_a_seed_that_makes_no_difference_says_so(sampling, session, page):
    session.settings.adjustable = lambda: {"temp": "0", "seed": "7"}
    sampling._use_seed("8")
    assert page.told == ["seed 8; it makes no difference at temperature 0"]


def test_where_no_seed_gives_another_answer_that_is_said(sampling, session, page):
    sampling._vary_seed()
    assert session.orders == []
    assert page.told == ["temperature 0 writes the same text again; /temp 0.7 gives another answer"]


def test_a_recording_is_played_again_without_a_word(sampling, session, page):
    session.settings = None
    sampling._vary_seed()
    assert (session.orders, page.told) == ([], [])


def test_only_what_was_changed_for_good_is_adjusted_under_the_name_of_the_session(
    sampling, session, page
):
    before = Settings()
    chosen = {"temperature": 0.25, "max_tokens": 9}
    sampling.follow_settings(before, replace(before, ink="off", sampling=chosen))
    assert session.orders == [("adjust", "temp", "0.25"), ("adjust", "max", "9")]
    session.settings.adjust = refuse
    sampling.follow_settings(before, replace(before, sampling=chosen))
    assert page.told == []  # a recording has nothing to adjust


async def test_a_reply_is_written_again_with_the_same_seed_or_a_new_one(talk):
    await talk.begin(exchange("One", "1"))
    talk.next_reply.regenerate("same")
    assert talk.session.orders == [Regenerate()]
    assert talk.feed.state.phase == "busy"
    talk.next_reply.regenerate("new")
    (_, name, _), again = talk.session.orders[1:]
    assert (name, again) == ("seed", Regenerate())


async def test_a_reply_that_chance_wrote_is_written_again_with_another_seed(talk):
    await talk.begin(exchange("One", "1"))
    talk.session.settings.adjustable = lambda: {"temp": "0.7", "seed": "7"}
    talk.next_reply.regenerate()
    (_, name, _), again = talk.session.orders
    assert (name, again) == ("seed", Regenerate())


async def test_a_number_is_the_seed_to_write_again_with(talk):
    await talk.begin(exchange("One", "1"))
    talk.next_reply.regenerate("8")
    assert talk.session.orders == [("adjust", "seed", "8"), Regenerate()]


async def test_where_no_other_seed_can_be_had_nothing_is_written_again(talk):
    def refuse(name, value):
        raise ValueError("this is a recording")

    await talk.begin(exchange("One", "1"))
    talk.session.settings.adjust = refuse
    talk.next_reply.regenerate("new")
    assert (talk.session.orders, talk.page.told) == ([], ["this is a recording"])
    assert talk.feed.state.phase == "ready"
