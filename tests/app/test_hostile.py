"""A recording from elsewhere draws text on every screen, and nothing else."""

import unicodedata

import pytest

from mlxspec_app.conversation.events import SessionNotice, SessionOpening, SessionReady
from tests.support import hostile_traces
from tests.support.app_driver import chat, replay, rows, running
from tests.support.race_driver import racing
from tests.support.scripted_session import ScriptedSession

EVENTS = list(hostile_traces.events())


def controls(screen):
    """Characters on a screen that a terminal would obey, or that hide or turn text."""
    drawn = set("".join(rows(screen)))
    found = {char for char in drawn if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")}
    return found | drawn & {"\u202e"}


async def walk(driver, *keys):
    """Press keys one by one; after each, nothing that is drawn is a control."""
    for key in keys:
        await driver.press(key)
        assert controls(driver.pilot.app.screen) == set(), key


@pytest.mark.parametrize("size", [(60, 20), (140, 45)])
async def test_in_a_replay(size):
    async with replay(EVENTS, size=size) as driver:
        await driver.press("space")
        await walk(driver, "right", "right", "t", "right", "right", "M", "K", "K", "s", "right")
        await walk(driver, "i", "i", "i", "greater_than_sign", "question_mark", "q", "S", "escape")


@pytest.mark.parametrize("size", [(60, 20), (140, 45)])
async def test_in_the_chat(size):
    news = [SessionOpening("e\x1b[31m", "d\x1b[31m"), SessionReady(), SessionNotice("n\x1b[31m")]
    async with running(ScriptedSession(*news, *EVENTS), size=size) as driver:
        assert controls(driver.screen) == set()
        await walk(driver, "f3", "f4", "tab", "left", "left", "left_square_bracket", "k", "k")
        await walk(driver, "M", "K", "m", "tab")
        await driver.say("/context")
        assert controls(driver.app.screen) == set()


async def test_in_a_race():
    async with racing(EVENTS, EVENTS, size=(60, 20)) as driver:
        await walk(driver, "greater_than_sign", "w", "up", "i", "question_mark", "q", "p")


async def test_what_is_said_of_a_wrong_line_is_text():
    async with chat() as driver:
        for line in ("/ink [/b]", "/ink \x1b[31m", "/ink [b]x", "/temp [/]", "/export [/x] y"):
            await driver.say(line)
            assert line.split()[1].replace("\x1b", "\\x1b") in driver.shown
            assert controls(driver.app.screen) == set()
