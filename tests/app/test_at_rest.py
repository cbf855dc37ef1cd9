"""A screen that draws no frames, because nothing is being written."""

import threading
import time

from mlxspec_app.store import thread
from mlxspec_app.store.errors import StoreError
from mlxspec_app.user_data import find_user_data
from tests.support.app_driver import chat

PATIENCE_S = 10


async def test_what_the_store_says_then_is_shown(tmp_path, monkeypatch):
    is_at_rest = threading.Event()

    def refuse(*_):
        is_at_rest.wait(PATIENCE_S)
        raise StoreError("the disk is full")

    monkeypatch.setattr(thread, "open_for_writing", refuse)
    user_data = find_user_data(tmp_path)
    user_data.stores_chats = True
    try:
        async with chat(user_data=user_data) as driver:
            await driver.pilot.pause(0.3)  # frames have stopped by now
            assert "the disk is full" not in driver.shown
            is_at_rest.set()
            deadline = time.monotonic() + PATIENCE_S
            while "! the disk is full; this chat is not saved" not in driver.shown:
                assert time.monotonic() < deadline, driver.shown
                await driver.pilot.pause(0.02)
    finally:
        is_at_rest.set()
        user_data.close()
