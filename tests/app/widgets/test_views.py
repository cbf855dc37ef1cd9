"""What the chat screen shows, at any size, in any state, whatever a trace holds."""

import pytest
from rich.cells import cell_len

from mlxspec.trace.events import (
    GenerationFailed,
    GenerationStarted,
    PrefillProgress,
    TurnStarted,
)
from mlxspec_app.conversation.events import (
    LoadProgress,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.orders import Say
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.stats_panel import StatsPanel
from tests.support.app_driver import chat, running
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake


async def test_reading_the_prompt_is_shown_and_a_failed_reply_names_the_way_on():
    prefill = PrefillProgress(0.1, 128, 512, reused=64)
    session = ScriptedSession(
        SessionReady(), TurnStarted("user", "x"), GenerationStarted("t", "d"), prefill
    )
    async with running(session) as driver:
        assert "reading the prompt" in driver.shown
        assert "128 of 512 tokens, 64 still cached" in driver.shown
        session.news = [GenerationFailed(0.1, "out of memory", "Traceback …")]
        await driver.settle()
        assert "✗ out of memory  Ctrl+R tries again" in driver.shown
        assert "Traceback" not in driver.shown


async def test_loading_is_shown_as_it_goes():
    session = ScriptedSession(SessionOpening("SmolLM2", "suffix"))
    async with running(session) as driver:
        assert "loading SmolLM2" in driver.shown
        session.news = [LoadProgress(49_000_000, 98_000_000)]
        await driver.settle()
        assert "50%  49 MB of 98 MB" in driver.shown
        await driver.say("early")
        assert Say("early") not in session.orders
        session.news = [SessionReady()]
        await driver.settle()
        assert session.orders[-1] == Say("early")  # it waited
        assert "49 MB" not in driver.shown


async def test_the_panels_come_and_go_with_their_keys():
    async with chat(make_fake.tree(), size=(140, 45), view="xray") as driver:
        await driver.say("Explain it.")
        stats = driver.screen.state.reply.stats
        first = f"{stats.acceptance_by_depth[0]:.0%} │ {stats.acceptance_given_reached[0]:>4.0%}"
        mean = f"mean {stats.accepted / stats.rounds:.2f} (+1)"
        for is_shown in (True, False, True):
            assert all((text in driver.shown) == is_shown for text in (first, mean))
            await driver.press("f4")
        await driver.press("f3", "f4")
        assert f"draft tree, round {driver.screen.state.last_round.verdict.r}" in driver.shown
        await driver.press("f3")
        assert not driver.screen.query_one(TreePanel).display
        await driver.pilot.resize_terminal(90, 30)
        for is_shown in (False, True):  # over the text, where both do not fit side by side
            await driver.press("f4")
            assert driver.screen.query_one(StatsPanel).display is is_shown


@pytest.mark.parametrize(("view", "height"), [("xray", 3), ("colours", 2)])
async def test_the_lane_keeps_its_height_and_shows_the_last_finished_round(view, height):
    async with chat(speed=1.0, view=view) as driver:
        await driver.say("Explain it.")
        lane = driver.screen.query_one(DraftLane)
        for _ in range(8):
            await driver.wait(0.1)
            assert lane.outer_size.height == height
            assert lane.shown is driver.screen.state.last_round
        await driver.wait(60)
        assert list(driver.screen.query(TokenMessage))[1].text == make_fake.PROSE


async def test_the_view_stays_where_the_reader_scrolled_to_until_a_key_or_a_message():
    async with chat(speed=1.0, size=(60, 16), view="xray") as driver:
        await driver.say("Explain it.")
        await driver.wait(0.6)
        transcript = driver.screen.query_one(Transcript)
        assert transcript.scroll_y == transcript.max_scroll_y > 0
        await driver.press("pageup")
        position = transcript.scroll_y
        await driver.wait(0.3)
        assert transcript.scroll_y == position < transcript.max_scroll_y
        assert "new tokens" in driver.shown
        await driver.press("ctrl+end")
        assert transcript.scroll_y == transcript.max_scroll_y
        assert "new tokens" not in driver.shown
        await driver.press("pageup")
        await driver.say("two")
        assert transcript.scroll_y == transcript.max_scroll_y


async def test_markup_in_a_message_is_text():
    events = make_fake.FakeEngine(drafter="[b]d[/b]").reply("x", "[red]word[/red] [/] [")
    async with chat(list(events)) as driver:
        await driver.say("[bold]mine[/bold] [")
        assert "\u276f [bold]mine[/bold] [" in driver.shown
        assert "[red]word[/red] [/] [" in driver.shown
        assert "[b]d[/b]" in driver.shown


async def test_every_size_draws_every_trace():
    async with chat([*make_fake.chat(), *make_fake.tree(), *make_fake.wide()]) as driver:
        await driver.press("f3")
        for _ in range(4):
            await driver.say("Explain it.")
        for size in [(100, 30), (60, 20), (20, 6), (4, 2), (140, 45)]:
            await driver.pilot.resize_terminal(*size)
            await driver.settle()
            assert {cell_len(row) for row in driver.shown.split("\n")} == {size[0]}


async def test_an_idle_session_is_not_polled():
    async with chat() as driver:
        await driver.say("Explain it.")
        await driver.settle()
        calls = []
        drain = driver.session.drain
        driver.session.drain = lambda: calls.append(1) or drain()
        await driver.pilot.pause(0.2)
        assert calls == []
