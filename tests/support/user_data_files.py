"""Runs the chat with a store on disk, and waits for the answers of the store."""

import asyncio
import math
import time
from contextlib import asynccontextmanager

from mlxspec_app.app import MlxspecApp
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.screens.history import HistoryScreen
from mlxspec_app.store.thread import StoreThread
from mlxspec_app.user_data import find_user_data
from tests.support.answering_replay import AnsweringReplay
from tests.support.app_driver import START_S, Clock, Driver, noting_start
from tests.support.store_files import open_writer, say
from tests.traces import make_fake

PATIENCE_S = 10


@asynccontextmanager
async def kept_chat(folder, session=None, *, continues=False, speed=math.inf, size=(100, 30)):
    """Run the chat over recorded replies, or a session, with its store in a folder."""
    clock = Clock()
    user_data = find_user_data(folder)
    session = session or AnsweringReplay(make_fake.chat(), speed=speed, clock=clock)
    user_data.store_chats_of(session)
    app = MlxspecApp(lambda: ChatScreen(session, user_data, continues=continues))
    begun = noting_start(session)
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            driver = Driver(pilot, session, clock)
            await asyncio.wait_for(begun.wait(), START_S)
            await rest(driver)
            yield driver
    finally:
        user_data.close()


@asynccontextmanager
async def chat_list(folder, size=(100, 30), query=""):
    """Run the list of chats alone over the store in a folder."""
    notices = []
    store = StoreThread(folder / "chats.sqlite3", folder / "traces", notices.append)
    store.start()
    try:
        app = MlxspecApp(lambda: HistoryScreen(store, query))
        async with app.run_test(size=size, notifications=True) as pilot:
            driver = Driver(pilot, None, Clock())
            await rest(driver)
            yield driver
    finally:
        store.close()


async def rest(driver):
    """Wait until the store has answered all requests, and the screen shows the answers."""
    deadline = time.monotonic() + PATIENCE_S
    await driver.settle()
    while any(not worker.is_finished for worker in driver.app.workers):
        while any(not worker.is_finished for worker in driver.app.workers):
            assert time.monotonic() < deadline, "the store does not answer"
            await asyncio.sleep(0.002)
        await driver.settle()  # an answer can cause more requests


async def appears(driver, text):
    """Wait until a text is shown: notices appear with a delay."""
    deadline = time.monotonic() + PATIENCE_S
    while text not in driver.shown:
        assert time.monotonic() < deadline, driver.shown
        await driver.settle()


async def press(driver, *keys):
    """Press keys one by one, and wait after each."""
    for key in keys:
        await driver.pilot.press(key)
        await rest(driver)


async def type_in(driver, text):
    """Press the keys of a text, and wait after the last one."""
    await driver.pilot.press(*("space" if key == " " else key for key in text))
    await rest(driver)


async def enter(driver, text):
    """Send a message or a command."""
    await driver.say(text)
    await rest(driver)


def fill(folder, *titles, replies=("An answer.",)):
    """Add one chat per title, oldest first, with one turn and its replies."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = open_writer(folder / "chats.sqlite3", time.time)
    for title in titles:
        say(writer, writer.new_chat(), title, *replies)
    writer.close()


def kept_texts(folder, chat):
    """The conversation of a chat as the next start loads it."""
    writer = open_writer(folder / "chats.sqlite3")
    try:
        return [message.text for message in writer.path(chat)]
    finally:
        writer.close()
