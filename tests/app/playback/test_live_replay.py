"""A replay over a conversation: what it is made of, and what goes on below it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec_app.conversation.fold import fold
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.timeline import Timeline
from mlxspec_app.screens.replay import LiveReplayScreen
from tests.app.playback.test_timeline import RECORDINGS, snapshot
from tests.support.app_driver import chat
from tests.traces import make_fake


def test_a_finished_conversation_is_retold_event_by_event():
    events = make_fake.chat()
    retold = events_of(fold(events))
    early = [event for event in events if getattr(event, "done", 1) == getattr(event, "total", 1)]
    assert [type(event) for event in retold] == [type(event) for event in early]
    assert Timeline(retold).rounds[-1].accepted == Timeline(events).rounds[-1].accepted


@given(st.sampled_from(list(RECORDINGS)), st.integers(0, 120))
@settings(max_examples=20)
def test_what_is_retold_folds_to_the_same_conversation(name, position):
    laid_out = Timeline(RECORDINGS[name])
    position = min(position, len(laid_out))
    while position and laid_out.moments[position - 1].phase in ("draft", "verify"):
        position -= 1  # a draft that has no verdict yet is not part of the conversation
    state = fold(laid_out.events(0, position))
    again = fold(events_of(state))
    for one, other in zip(state.messages, again.messages, strict=True):
        assert one.text == other.text
        if one.role == "assistant":
            assert snapshot(one.rounds) == snapshot(other.rounds)
            assert (one.reason, one.error) == (other.reason, other.error)
            assert one.stats.as_dict() == other.stats.as_dict()


def rounds_of(screen):
    return len(Timeline(events_of(screen.state)).rounds)


async def test_a_reply_goes_on_while_its_beginning_is_replayed():
    async with chat(speed=1.0) as driver:
        below = driver.screen
        await driver.say("Explain it.")
        await driver.wait(0.5)
        text, done = below.state.reply.text, rounds_of(below)
        screen = LiveReplayScreen(events_of(below.state), lambda: rounds_of(below))
        await driver.app.push_screen(screen)
        await driver.settle()
        assert f"round {done}/{done}" in driver.shown
        assert screen.state.reply.text == text
        await driver.press("left_square_bracket")
        driver.clock.now += 0.2
        below.tick()
        await driver.settle()
        assert len(below.state.reply.text) > len(text) > len(screen.state.reply.text)
        assert f"live +{rounds_of(below) - done} rounds" in driver.shown
        await driver.press("f6")
        assert driver.screen is below
