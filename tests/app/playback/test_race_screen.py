"""The race screen: two lanes on one clock, and the verdict below them."""

import re

import pytest
from rich.cells import cell_len

from mlxspec.trace.events import CostMeasured, SpeedupMeasured
from mlxspec_app.screens.race import RaceLane
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.support.race_driver import NUM_TOKENS, PLAIN, TREE, racing
from tests.support.race_runs import with_token
from tests.traces import make_fake


async def test_both_lanes_write_their_text_at_their_own_pace():
    async with racing() as driver:
        assert f"identical: {NUM_TOKENS} of {NUM_TOKENS} tokens" in driver.shown
        await driver.wait(0.6)
        ahead, behind = driver.texts
        assert ahead.startswith(behind)
        assert len(ahead) > len(behind) > 0
        assert "with guesses leads by " in driver.shown
        await driver.wait(100)
        assert driver.texts == [make_fake.PROSE] * 2
        assert "■ end" in driver.shown
        assert "with guesses finished" in driver.shown


async def test_space_arrows_and_ends_move_both():
    async with racing() as driver:
        await driver.press("right", "right")
        assert "‖ paused" in driver.shown
        there = driver.texts
        await driver.wait(5)
        assert driver.texts == there
        await driver.press("right", "left")
        assert driver.texts == there
        await driver.press("end")
        assert driver.texts == [make_fake.PROSE] * 2
        await driver.press("home")
        assert driver.texts == ["", ""]
        await driver.press("space")
        await driver.wait(0.6)
        assert driver.texts[0] > there[0]


@pytest.mark.parametrize(("size", "is_stacked"), [((60, 20), True), ((100, 30), False)])
async def test_lanes_stand_side_by_side_where_there_is_room(size, is_stacked):
    async with racing(size=size) as driver:
        await driver.wait(1.0)
        first, second = driver.pilot.app.screen.query(RaceLane)
        assert (first.region.x == second.region.x) == is_stacked
        assert (first.region.y == second.region.y) != is_stacked
        assert all(cell_len(row) == size[0] for row in driver.shown.split("\n"))
        await driver.press("end")
        assert "with guesses finished" in driver.shown
        assert "✓ identical" in driver.shown


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (with_token(PLAIN, 4, -1, " boat"), "✗ the texts part after 4 tokens: with guesses has"),
        (make_fake.chat(), "! not compared: different prompts"),
    ],
    ids=["differs", "incomparable"],
)
async def test_a_difference_or_why_nothing_is_compared_is_shown_at_once(other, line):
    async with racing(b=other) as driver:
        assert line in driver.shown


async def test_the_end_has_one_ratio_and_the_figures_of_both():
    cost = CostMeasured(9.0, 100, (1, 2), (20.0, 21.0))
    speedup = SpeedupMeasured(1.7, 20.0, 60, (60,))
    async with racing([*TREE, cost, speedup], [*PLAIN, cost], size=(140, 42)) as driver:
        await driver.press("plus")
        assert "▶ 2\u00d7" in driver.shown
        await driver.press("end")
        assert len(re.findall(r"x the speed|\u00d7\d|faster", driver.shown)) == 1
        assert "with guesses finished 2.71 s earlier, at 3.0x the speed" in driver.shown
        told = ("recorded in turn, played on one clock", "model alone", "% guessed")
        told += ("no guesses",)
        assert [words for words in told if words not in driver.shown] == []
        await driver.press("f2")
        transcripts = driver.pilot.app.screen.query(Transcript)
        assert [transcript._view.name for transcript in transcripts] == ["xray"] * 2
        assert "mean length" in driver.shown
        assert "no drafts" in driver.shown
        assert "EAGLE-3 head, tree" in driver.shown
        assert driver.shown.count(f"{NUM_TOKENS}/{NUM_TOKENS} tok") == 2
        await driver.press("f1", *"pauses")
        assert "the next round of either run; pauses" in driver.shown
        await driver.pilot.press("escape", "q")
        await driver.pilot.pause()
        assert driver.pilot.app.return_code == 0
