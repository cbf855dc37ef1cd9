"""The bottom line: no key is cut, and keys that it shows no longer are let go of."""

import gc
import re

from textual.widgets._footer import FooterKey

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


async def test_keys_that_are_shown_no_longer_are_let_go_of():
    async with chat() as driver:
        footer = driver.screen.query_one(KeyFooter)
        for _ in range(6):
            footer.refresh(recompose=True)
            await driver.settle()
        num_shown = len(footer.query(FooterKey))
        gc.collect()
        num_alive = sum(isinstance(thing, FooterKey) for thing in gc.get_objects())
        assert 0 < num_shown <= num_alive < 4 * num_shown  # those before may still be on their way
