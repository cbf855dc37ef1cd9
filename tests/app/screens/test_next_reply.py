"""What writes the next reply: other models, another seed, other settings."""

from dataclasses import replace

import pytest

from mlxspec_app.commands import CommandError
from mlxspec_app.conversation.events import ModelChoice, SessionFailed, SessionOpening, SessionReady
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Load, Regenerate, Say
from mlxspec_app.screens.chat.next_reply import NextReply
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.settings.file import Settings
from tests.support.fake_page import FakePage
from tests.support.scripted_session import ScriptedSession

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
def next_reply(feed, page):
    return NextReply(feed, page)


def sampled():
    return {"temp": "0.7", "seed": "7"}


def refuse(name, value):
    raise ValueError("this cannot be")


def test_what_is_named_is_loaded_and_the_rest_stays(next_reply, session, page):
    next_reply.choose_model("llama")
    next_reply.choose_model("default")
    next_reply.choose_drafter("suffix")
    next_reply.load(NOW)
    next_reply.load(None)
    assert session.loads == [
        ModelChoice("llama", "auto", 64),
        ModelChoice("", "auto", 64),
        ModelChoice("qwen", "suffix", 64),
        NOW,
    ]
    assert page.told == []


@pytest.mark.parametrize("name", ["sufix", "pool,suffix", "a/b/c"])
def test_what_cannot_be_a_drafter_reloads_nothing(next_reply, session, name):
    with pytest.raises(CommandError):
        next_reply.choose_drafter(name)
    assert session.orders == []


@pytest.mark.parametrize("choose", ["choose_model", "choose_drafter"])
def test_without_a_catalogue_models_have_to_be_named(next_reply, page, choose):
    getattr(next_reply, choose)()
    assert ["/model NAME" in told for told in page.told] == [True]


def test_a_reply_that_is_being_written_ends_first_and_that_is_said(next_reply, feed, page):
    feed.send(Say("hi"))
    next_reply.load(NOW)
    assert feed.session.orders[1:] == [Load(NOW)]
    assert len(page.told) == 1


def test_a_setting_is_adjusted_or_said(next_reply, session, page):
    next_reply.adjust("temp", "0.5")
    next_reply.adjust("k", "")
    assert session.orders == [("adjust", "temp", "0.5")]
    assert page.told == ["temp is 0.5 from the next reply on", "k is 15; /settings shows all"]


def test_a_value_that_is_refused_changes_nothing(next_reply, session, page):
    session.settings.adjust = refuse
    with pytest.raises(CommandError, match="this cannot be"):
        next_reply.adjust("temp", "9")
    with pytest.raises(CommandError, match="this cannot be"):
        next_reply.regenerate("new")
    session.settings = None
    with pytest.raises(CommandError, match="recording"):
        next_reply.regenerate("8")
    assert (session.orders, page.told) == ([], [])


def test_each_seed_is_drawn_anew(next_reply, session, page):
    session.settings.adjustable = sampled
    next_reply.regenerate()
    next_reply.regenerate("new")
    (_, name, first), again, (_, _, second), _ = session.orders
    assert (name, again) == ("seed", Regenerate())
    assert first != second
    assert 0 <= int(first) < 2**32
    assert page.told == [f"seed {first}", f"seed {second}"]


@pytest.mark.parametrize(
    ("seed", "adjusted", "told"),
    [
        ("same", [], []),
        ("8", [("adjust", "seed", "8")], ["seed 8; it makes no difference at temperature 0"]),
        ("", [], ["temperature 0 writes the same text again; /temp 0.7 gives another answer"]),
    ],
)
def test_where_a_seed_makes_no_difference_that_is_said(
    next_reply, session, feed, page, seed, adjusted, told
):
    next_reply.regenerate(seed)
    assert session.orders == [*adjusted, Regenerate()]
    assert page.told == told
    assert feed.state.phase == "busy"


def test_a_recording_is_played_again_without_a_word(next_reply, session, page):
    session.settings = None
    next_reply.regenerate()
    assert (session.orders, page.told) == ([Regenerate()], [])


def test_without_a_model_a_retry_loads_it_again(next_reply, session, feed):
    feed.state = fold([SessionFailed("no room")], feed.state)
    next_reply.regenerate()
    assert session.orders == [Load(NOW)]


def test_only_what_was_changed_for_good_is_adjusted_under_the_name_of_the_session(
    next_reply, session, page
):
    before = Settings()
    chosen = {"temperature": 0.25, "max_tokens": 9}
    next_reply.follow_settings(before, replace(before, ink="off", sampling=chosen))
    assert session.orders == [("adjust", "temp", "0.25"), ("adjust", "max", "9")]
    session.settings.adjust = refuse
    next_reply.follow_settings(before, replace(before, sampling=chosen))
    assert page.told == []  # a recording has nothing to adjust
