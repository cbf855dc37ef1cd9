"""The replay screen: a recording in the views of the chat, with a transport."""

from app_driver import replay
from traces import make_fake

from mlxspec_app.widgets.token_message import TokenMessage


async def test_the_whole_recording_ends_up_on_the_screen():
    async with replay(make_fake.chat(), size=(100, 45)) as driver:
        await driver.wait(100)
        replies = [m.text for m in driver.screen.state.messages]
        assert replies[1::2] == [make_fake.PROSE, make_fake.CODE]
        assert len(driver.screen.query(TokenMessage)) == 4
        assert "■ end" in driver.shown


async def test_space_pauses_and_goes_on():
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


async def test_a_full_stop_shows_the_next_round():
    async with replay(make_fake.chat()) as driver:
        for number in (1, 2, 3):
            await driver.press("full_stop")
            assert driver.screen.state.last_round.verdict.r == number
            assert f"round {number}/" in driver.shown


async def test_plus_and_minus_change_the_speed():
    async with replay(make_fake.chat()) as driver:
        await driver.press("plus")
        assert "2\u00d7" in driver.shown
        await driver.press("minus", "minus")
        assert "0.5\u00d7" in driver.shown


async def test_q_quits():
    async with replay(make_fake.chat()) as driver:
        await driver.pilot.press("q")
        await driver.pilot.pause()
        assert driver.app.return_code == 0


async def test_the_replay_shows_what_the_chat_showed():
    async with replay(make_fake.chat(), size=(140, 45)) as driver:
        await driver.wait(100)
        for word in ("SmolLM2-135M-Instruct", "EAGLE head", "lossless greedy", "0.6 GB", "seed 7"):
            assert word in driver.shown


async def test_the_keys_of_the_replay_are_on_its_help_page():
    async with replay(make_fake.chat()) as driver:
        await driver.press("f1")
        assert "pause or go on" in driver.shown
        assert "send the message" not in driver.shown
