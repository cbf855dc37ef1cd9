"""What the chat screen shows, at any size, in any state, whatever a trace holds."""

import re
import unicodedata
from dataclasses import replace

import pytest
from rich.cells import cell_len

from mlxspec.trace.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PrefillProgress,
    TurnStarted,
)
from mlxspec_app.conversation.events import (
    LoadProgress,
    SessionFailed,
    SessionNotice,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.orders import Say
from mlxspec_app.conversation.views import INKS
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.stats_panel import StatsPanel
from tests.support.app_driver import chat, running
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake


async def test_the_footer_of_a_reply_has_its_figures():
    async with chat(view="xray") as driver:
        await driver.say("Explain it.")
        figures = driver.screen.state.reply.stats
        assert f"{figures.generation_tps:.1f} tokens/s · TTFT" in driver.shown
        assert "tok/round" in driver.shown
        assert "seed 7" not in driver.shown  # the reply is greedy


async def test_the_widget_shows_exactly_the_text_of_the_state():
    async with chat(speed=1.0) as driver:
        await driver.say("Explain it.")
        for _ in range(16):
            await driver.wait(0.09)
        widget = list(driver.screen.query(TokenMessage))[1]
        assert widget.text == make_fake.PROSE


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


async def test_a_model_that_cannot_be_loaded_is_a_row_and_not_a_crash():
    session = ScriptedSession(SessionOpening("x"), SessionFailed("no model 'x': try another"))
    async with running(session) as driver:
        assert "✗ no model 'x': try another" in driver.shown


async def test_the_empty_chat_teaches_the_legend():
    async with chat() as driver:
        for word in ("guessed", "own", "F2", "X-ray", "Write a short poem"):
            assert word in driver.shown
        await driver.say("hi")
        assert "Write a short poem" not in driver.shown


async def test_inks_cycle_in_the_x_ray_and_say_their_names():
    async with chat(view="xray") as driver:
        await driver.say("Explain it.")
        await driver.press("tab")
        names = []
        for _ in INKS:
            await driver.press("I")
            names.append(driver.screen.ink.name)
            assert f"X-ray: {names[-1]}" in driver.shown
        assert names == [ink.name for ink in (*INKS[1:], INKS[0])]


async def test_statistics_stand_beside_the_chat_where_there_is_room():
    async with chat(size=(140, 45), view="xray") as driver:
        await driver.say("Explain it.")
        stats = driver.screen.state.reply.stats
        first = f"{stats.acceptance_by_depth[0]:.0%} │ {stats.acceptance_given_reached[0]:>4.0%}"
        assert first in driver.shown
        assert f"mean {stats.accepted / stats.rounds:.2f} (+1)" in driver.shown
        for is_shown in (False, True):
            await driver.press("f4")
            assert ("accepted at position" in driver.shown) == is_shown
        await driver.pilot.resize_terminal(90, 30)
        await driver.settle()
        assert not driver.screen.query_one(StatsPanel).display
        await driver.press("f4")
        assert not driver.screen.query_one(StatsPanel).display
        assert "need 100 columns" in driver.shown


async def test_the_tree_panel_shows_the_last_round():
    async with chat(make_fake.tree(), speed=1.0) as driver:
        await driver.say("Explain it.")
        await driver.wait(0.5)
        await driver.press("f3")
        assert f"draft tree, round {driver.screen.state.last_round.verdict.r}" in driver.shown
        await driver.press("f3")
        assert not driver.screen.query_one(TreePanel).display


@pytest.mark.parametrize(("view", "height"), [("xray", 3), ("colours", 2)])
async def test_the_lane_keeps_its_height(view, height):
    async with chat(speed=1.0, view=view) as driver:
        await driver.say("Explain it.")
        heights = set()
        for _ in range(12):
            await driver.wait(0.1)
            heights.add(driver.screen.query_one(DraftLane).outer_size.height)
        assert heights == {height}


async def test_the_lane_shows_the_last_finished_round():
    async with chat(speed=1.0, view="xray") as driver:
        await driver.say("Explain it.")
        await driver.wait(0.7)
        assert driver.screen.query_one(DraftLane).shown is driver.screen.state.last_round
        assert "kept" in driver.shown or "no draft" in driver.shown


async def test_help_is_one_key_away():
    async with chat(size=(100, 60)) as driver:
        await driver.press("f1")
        assert isinstance(driver.app.screen, HelpScreen)
        for word in ("rejected", "Ctrl+R", "exceptions", "send the message"):
            assert word in driver.shown
        await driver.press("escape")
        assert not isinstance(driver.app.screen, HelpScreen)


async def test_the_view_follows_the_newest_text():
    async with chat(speed=1.0, size=(60, 16)) as driver:
        await driver.say("Explain it.")
        await driver.wait(60)
        transcript = driver.screen.query_one(Transcript)
        assert transcript.max_scroll_y > 0
        assert transcript.scroll_y == transcript.max_scroll_y


async def test_the_view_stays_where_the_reader_scrolled_to():
    async with chat(speed=1.0, size=(60, 16), view="xray") as driver:
        await driver.say("Explain it.")
        await driver.wait(0.6)
        await driver.press("pageup")
        transcript = driver.screen.query_one(Transcript)
        position = transcript.scroll_y
        await driver.wait(0.3)
        assert transcript.scroll_y == position
        assert "new tokens" in driver.shown
        await driver.press("ctrl+end")
        assert transcript.scroll_y == transcript.max_scroll_y
        assert "new tokens" not in driver.shown


async def test_a_message_of_ones_own_is_always_in_view():
    async with chat(size=(60, 16)) as driver:
        await driver.say("one")
        await driver.press("pageup")
        await driver.say("two")
        transcript = driver.screen.query_one(Transcript)
        assert transcript.scroll_y == transcript.max_scroll_y


async def test_nothing_a_trace_holds_reaches_the_terminal_as_a_control():
    evil = "\x1b[31m\x9b2J\a\r\u202e\x00"
    hostile = make_fake.FakeEngine(drafter=f"d{evil}")
    events = [e for e in hostile.reply("x", "word " * 20) if not isinstance(e, GenerationFinished)]
    events = [_tainted(event, evil) for event in events]
    session = ScriptedSession(
        SessionReady(), *events, GenerationFailed(9.0, evil), TurnStarted("user", evil)
    )
    async with running(session, size=(140, 40)) as driver:
        await driver.press("f3")
        apply(driver.screen.state, SessionNotice(evil))
        driver.screen.state.queue.append(evil)
        await driver.settle()
        kinds = {unicodedata.category(c) for c in driver.shown.replace("\n", "")}
        assert not kinds & {"Cc", "Cs", "Zl", "Zp"}
        assert "\u202e" not in driver.shown


def _tainted(event, evil):
    if hasattr(event, "nodes"):
        return replace(event, nodes=tuple(replace(n, text=evil) for n in event.nodes))
    if hasattr(event, "emit"):
        return replace(event, emit=tuple(replace(t, text=evil + t.text) for t in event.emit))
    return event


async def test_markup_in_a_message_is_text():
    events = make_fake.FakeEngine(drafter="[b]d[/b]").reply("x", "[red]word[/red] [/] [")
    async with chat(list(events)) as driver:
        await driver.say("[bold]mine[/bold] [")
        assert "\u276f [bold]mine[/bold] [" in driver.shown
        assert "[red]word[/red] [/] [" in driver.shown
        assert "[b]d[/b]" in driver.shown


async def test_no_color_keeps_the_cues(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with chat(view="xray") as driver:
        assert driver.app.no_color
        await driver.say("Explain it.")
        svg = driver.app.export_screenshot()
        colours = re.findall(r'-r\d+ { fill: (#\w{6})|<rect fill="(#\w{6})"', svg)
        codes = {one or other for one, other in colours} - {"#c5c8c6"}  # text without a colour
        assert len(codes) > 3
        assert all(code[1:3] == code[3:5] == code[5:7] for code in codes)
        for cue in ("underline", "italic", "bold"):
            assert cue in svg


@pytest.mark.parametrize("trace", make_fake.TRACES)
async def test_every_size_draws_every_trace(trace):
    async with chat(make_fake.TRACES[trace](), size=(140, 45)) as driver:
        await driver.press("f3")
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
