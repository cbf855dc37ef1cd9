"""`mlxspec watch` on the screen: tokens, tree and figures of one reply, and the list of all."""

from contextlib import asynccontextmanager

from mlxspec.trace.events import TurnStarted
from mlxspec_app.app import MlxspecApp
from mlxspec_app.screens.watch import WatchScreen
from mlxspec_app.sessions.servers import (
    EventsLost,
    ReplyEvent,
    StreamBroken,
)
from mlxspec_app.sessions.watching import WatchSession
from tests.support.app_driver import Clock, Driver
from tests.traces import make_fake

EVENTS = [event for event in make_fake.tree() if not isinstance(event, TurnStarted)]


@asynccontextmanager
async def watching(size=(100, 34)):
    """The screen over a feed that tells nothing by itself."""
    session = WatchSession(())
    app = MlxspecApp(lambda: WatchScreen(session, "http://there:8080"))
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = Driver(pilot, session, Clock())
        await driver.settle()
        yield driver


async def tell(driver, *items):
    driver.session._waiting.extend(items)
    await driver.settle()


def told(name, count=None):
    return [ReplyEvent("tiny", name, event) for event in EVENTS[:count]]


async def test_a_reply_is_shown_in_colours_with_its_last_round_and_figures():
    async with watching() as driver:
        await tell(driver, *told("abcdef0", 13))
        reply = driver.session.shown
        assert driver.screen.state.reply.text[:20] in driver.shown.replace("\n", " ")
        assert f"▸ ● abcdef   tiny ◂ {reply.drafter}" in driver.shown
        assert f"{reply.stats.generated_tokens} tokens" in driver.shown
        assert "acceptance rate" in driver.shown
        kinds = {span.kind for span in driver.screen.state.reply.spans}
        assert "accepted" in kinds
        await driver.press("f3")
        assert "✗" in driver.shown


async def test_brackets_go_from_reply_to_reply():
    async with watching() as driver:
        await tell(driver, *told("first", 6))
        before = driver.screen.state.reply.text
        await tell(driver, *told("second", 12))
        assert driver.session.shown.name == "first"
        assert driver.screen.state.reply.text == before
        await driver.press("right_square_bracket")
        assert driver.session.shown.name == "second"
        assert len(driver.screen.state.reply.text) > len(before)
        await tell(driver, ReplyEvent("tiny", "first", EVENTS[6]))
        await driver.press("left_square_bracket")
        assert len(driver.screen.state.reply.rounds) == len(
            [event for event in EVENTS[:7] if event.t in ("verify", "plain")]
        )


async def test_it_waits_for_replies_and_says_what_trouble_the_stream_has():
    async with watching(size=(120, 34)) as driver:
        assert "Replies of the server appear here" in driver.shown
        assert "● http://there:8080 · 0 running" in driver.shown
        await tell(driver, *told("first", 4), EventsLost(5), StreamBroken("no server answers"))
        assert "○ http://there:8080 · no server answers · 5 events lost" in driver.shown
        assert "✗ first" in driver.shown
        await driver.press("q")
        assert driver.app.return_code == 0
