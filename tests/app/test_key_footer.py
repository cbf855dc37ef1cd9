"""The bottom line: no key is cut, and a click presses one."""

import re

from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from tests.support.app_driver import chat, rows

WHOLE = re.compile(r"( READING  )?((esc|tab|→|⏎|[a-z]|\^[a-z]|f\d) [A-Z][a-z-]+ ?)+ *")


async def test_whole_keys_go_from_the_end_and_those_to_all_others_last():
    async with chat(size=(99, 20)) as driver:
        await driver.say("hello")
        await driver.press("tab")
        lines = {}
        for width in (99, 60, 36, 99):
            await driver.pilot.resize_terminal(width, 20)
            await driver.settle()
            line = rows(driver.screen)[-1]
            assert WHOLE.fullmatch(line)
            assert lines.setdefault(width, line) == line  # keys come back with their room
        assert "y Copy f1 Help ^p Commands f2 X-ray" in " ".join(lines[99].split())
        assert "→ Token f1 Help ^p Commands f2 X-ray" in " ".join(lines[60].split())
        assert lines[36].strip() == "READING  f1 Help ^p Commands"
        assert "Stats" not in lines[99]


async def test_a_click_presses_the_key_below_it_and_the_pointer_tells_its_meaning():
    async with chat(size=(99, 20)) as driver:
        footer = driver.screen.query_one(KeyFooter)
        column = rows(driver.screen)[-1].index("Help")
        await driver.pilot.hover(KeyFooter, offset=(column, 0))
        assert "keys" in footer.tooltip
        await driver.pilot.click(KeyFooter, offset=(column, 0))
        await driver.pilot.pause()
        assert isinstance(driver.app.screen, HelpScreen)


async def test_a_click_on_a_key_that_is_disabled_rings_the_bell(monkeypatch):
    rung, pressed = [], []
    async with chat(size=(99, 20)) as driver:
        footer = driver.screen.query_one(KeyFooter)
        footer._active = [active._replace(enabled=False) for active in footer._active]
        footer.refresh()
        await driver.settle()
        monkeypatch.setattr(driver.app, "bell", lambda: rung.append(True))
        monkeypatch.setattr(driver.app, "simulate_key", pressed.append)
        await driver.pilot.click(KeyFooter, offset=(rows(driver.screen)[-1].index("Help"), 0))
    assert (rung, pressed) == ([True], [])
