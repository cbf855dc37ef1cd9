"""The replay screen: a recording in the views of the chat, with a transport."""

import pytest
from rich.cells import cell_len

from mlxspec_app.text.safe_text import safe_text
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.scrubber import Scrubber
from tests.support.app_driver import replay
from tests.traces import make_fake


async def test_the_whole_recording_ends_up_on_the_screen():
    async with replay(make_fake.chat(), size=(140, 60)) as driver:
        await driver.wait(100)
        replies = [m.text for m in driver.screen.state.messages]
        assert replies[1::2] == [make_fake.PROSE, make_fake.CODE]
        assert len(driver.screen.query(TokenMessage)) == 4
        told = ("SmolLM2-135M-Instruct", "EAGLE head", "lossless greedy", "0.6 GB", "tok/round")
        assert [word for word in ("■ end", *told) if word not in driver.shown] == []
        await driver.press("f1")
        assert "pause or resume" in driver.shown
        assert "send the message" not in driver.shown
        await driver.pilot.press("escape", "q")
        await driver.pilot.pause()
        assert driver.app.return_code == 0


async def test_keys_and_clicks_move_through_the_rounds():
    async with replay(make_fake.chat()) as driver:
        await driver.wait(0.5)
        await driver.press("space")
        text = driver.screen.state.reply.text
        await driver.wait(1.0)
        assert driver.screen.state.reply.text == text
        assert "‖ paused" in driver.shown
        await driver.press("space")
        await driver.wait(0.2)
        assert len(driver.screen.state.reply.text) > len(text)
        await driver.press("home", "right_curly_bracket")
        first = driver.screen.state.last_round
        assert first.verdict.emit[-1].kind == "corrected"
        await driver.press("right_curly_bracket", "left_curly_bracket")
        assert driver.screen.state.last_round.verdict == first.verdict
        await driver.press("g")
        assert "1 to 41" in driver.shown
        assert "▼" in driver.shown  # the recording stays in sight
        await driver.press("2", "0", "enter")
        assert "round 20/41" in driver.shown
        for key, number in (("right_square_bracket", 21), ("left_square_bracket", 20)):
            await driver.press(key)
            assert f"round {number}/41" in driver.shown
        scrubber = driver.screen.query_one(Scrubber)
        await driver.pilot.click(scrubber, offset=(50, 1))
        await driver.settle()
        assert "round 21/41" in driver.shown
        assert scrubber.render().plain[49:51].count("▼") == 1
        await driver.pilot.click(scrubber, offset=(1, 1))
        await driver.settle()
        assert "round 1/41" in driver.shown
        await driver.press("plus")
        assert "2\u00d7" in driver.shown
        await driver.press("minus", "minus")
        assert "0.5\u00d7" in driver.shown


async def test_arrows_show_a_draft_then_its_verdict_then_the_text():
    async with replay(make_fake.chat()) as driver:
        await driver.press("right", "right")
        assert "▸draft" in driver.shown
        assert "k=5  pending" in driver.shown
        assert "·Specula  ·tive" in driver.shown
        await driver.press("right")
        assert "▸verify" in driver.shown
        assert "kept 5 +1" in driver.shown
        assert driver.screen.state.reply.text == ""
        await driver.press("right")
        assert "▸commit" in driver.shown
        assert driver.screen.state.reply.text == "Speculative decoding lets a"
        await driver.press("left", "left")
        assert "pending" in driver.shown
        assert driver.screen.state.reply.text == ""


async def test_the_tree_shows_a_pending_draft_too():
    async with replay(make_fake.tree()) as driver:
        await driver.press("f3", "right", "right")
        assert driver.shown.count("nodes, depth 4  pending") == 2
        tree = driver.screen.query_one(TreePanel)
        assert "✗" not in tree.render().plain
        await driver.press("right")
        assert "✗" in tree.render().plain


async def test_going_back_takes_text_away_from_the_screen():
    async with replay([*make_fake.tree(), *make_fake.wide()], size=(80, 24)) as driver:
        await driver.press("end")
        for key in ["left", "left_square_bracket", "left", "left_curly_bracket"]:
            await driver.press(key)
            assert_shows_the_state(driver)
        await driver.press("home")
        assert not driver.screen.query(TokenMessage)
        await driver.press("end")
        assert_shows_the_state(driver)


def assert_shows_the_state(driver):
    shown = [w.text for w in driver.screen.query(TokenMessage)]
    assert shown == [safe_text(message.text) for message in driver.screen.state.messages]


@pytest.mark.parametrize("keys", [["5", "escape"], ["minus", "enter"]])
async def test_a_question_left_unanswered_changes_nothing(keys):
    async with replay(make_fake.chat()) as driver:
        await driver.press("right_square_bracket", "g", *keys)
        assert "round 1/41" in driver.shown


@pytest.mark.parametrize("size", [(60, 20), (140, 45)])
async def test_the_transport_fits_every_size(size):
    async with replay(make_fake.chat(), size=size) as driver:
        await driver.press("right_square_bracket", "right")
        assert "▸draft" in driver.shown
        assert "▼" in driver.shown
        assert all(cell_len(row) == size[0] for row in driver.shown.split("\n"))


async def test_the_statistics_follow_a_move_back():
    async with replay(make_fake.chat(), size=(140, 45)) as driver:
        await driver.press("end", "home", "right_square_bracket", "right_square_bracket")
        stats = driver.screen.state.reply.stats
        assert f"{stats.generated_tokens} tok" in driver.shown
        assert stats.target_forwards == 2
