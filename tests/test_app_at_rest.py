"""A screen that draws no frames, because nothing is being written."""

import time

from app_driver import chat

PATIENCE_S = 10


async def test_what_is_told_at_rest_is_shown():
    async with chat() as driver:
        await driver.settle()
        await driver.pilot.pause(0.3)  # frames have stopped by now
        driver.session.tell("the disk is full")
        deadline = time.monotonic() + PATIENCE_S
        while "! the disk is full" not in driver.shown:
            assert time.monotonic() < deadline, driver.shown
            await driver.pilot.pause(0.02)
