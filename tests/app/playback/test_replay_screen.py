"""The replay screen: a recording in the views of the chat, with a transport; also over a chat."""

from rich.cells import cell_len

from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.timeline import Timeline
from mlxspec_app.screens.replay import LiveReplayScreen
from mlxspec_app.text.safe_text import safe_text
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.scrubber import Scrubber
from tests.support.app_driver import chat, replay, texts
from tests.traces import make_fake


async def test_the_whole_recording_ends_up_on_the_screen():
    async with replay(make_fake.chat(), size=(140, 60)) as driver:
        await driver.wait(100)
        replies = [m.text for m in driver.screen.state.messages]
        assert replies[1::2] == [make_fake.PROSE, make_fake.CODE]
        assert len(driver.screen.query(TokenMessage)) == 4
        told = ("SmolLM2-135M-Instruct", "EAGLE head", "● lossless   greedy", "0.6 GB", "tok/round")
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
    async with replay(make_fake.chat(), size=(140, 45)) as driver:
        await driver.press("f3", "right", "right")
        assert "▸draft" in driver.shown
        assert driver.shown.count("k=5  pending") + driver.shown.count("depth 5  pending") == 2
        assert "·Specula  ·tive" in driver.shown
        tree = driver.screen.query_one(TreePanel)
        assert "✓" not in tree.render().plain
        await driver.press("right")
        assert "▸verify" in driver.shown
        assert "kept 5 +1" in driver.shown
        assert "✓" in tree.render().plain
        assert driver.screen.state.reply.text == ""
        await driver.press("right")
        assert "▸commit" in driver.shown
        assert driver.screen.state.reply.text == "Speculative decoding lets a"
        await driver.press("left", "left")
        assert "pending" in driver.shown
        assert driver.screen.state.reply.text == ""


async def test_going_back_takes_text_and_figures_away_from_the_screen():
    async with replay([*make_fake.tree(), *make_fake.wide()], size=(140, 45)) as driver:
        await driver.press("end")
        for key in ["left", "left_square_bracket", "left", "left_curly_bracket"]:
            await driver.press(key)
            shown = [widget.text for widget in driver.screen.query(TokenMessage)]
            assert shown == [safe_text(text) for text in texts(driver)]
        await driver.press("home")
        assert not driver.screen.query(TokenMessage)
        await driver.press("right_square_bracket", "right_square_bracket")
        stats = driver.screen.state.reply.stats
        assert f"{stats.generated_tokens} tok" in driver.shown
        assert stats.target_forwards == 2


async def test_a_question_left_unanswered_changes_nothing_and_the_transport_fits_a_small_screen():
    async with replay(make_fake.chat(), size=(60, 20)) as driver:
        await driver.press("right_square_bracket", "g", "5", "escape")
        assert "1/41" in driver.shown
        await driver.press("g", "minus", "enter")
        assert "1/41" in driver.shown
        await driver.press("right")
        assert "▸draft" in driver.shown
        assert "▼" in driver.shown
        assert all(cell_len(row) == 60 for row in driver.shown.split("\n"))


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
