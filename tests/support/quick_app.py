"""Textual in tests: keys wait for no clock, and style sheets are parsed once a process."""

import asyncio

import textual.app
import textual.pilot
from textual._context import active_app
from textual.css.stylesheet import Stylesheet

TIMERS_S = 0.01  # more than Textual's shortest timers have, which is 1/120
_parse = Stylesheet._parse_rules
_parsed = {}


async def _is_done(pilot, timeout=0):
    """Let all run that can run now.

    Textual itself sends a message to every widget of the screen, and waits for all of them.
    """
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:
        await asyncio.sleep(0)
    return True


async def _is_drawn(min_sleep=0, max_sleep=0):
    """Let all run that can run now, and the screen be drawn."""
    for _ in range(2):
        await _is_done(None)
        active_app.get().screen._on_timer_update()


async def _is_at_rest(min_sleep=0, max_sleep=0):
    """Let the timers of refreshes and of resizes run too."""
    await asyncio.sleep(TIMERS_S)
    await _is_drawn()


def _parse_once(sheet, css, **how):
    """Return the rules of a text, which depend on the theme's variables too."""
    key = (css, *how.values(), frozenset(sheet._variables.items()))
    if key not in _parsed:
        _parsed[key] = _parse(sheet, css, **how)
    return _parsed[key]


def hurry():
    """Have Textual wait and parse no more than tests need."""
    # These sleep until the process was idle for 20 ms: twice a key, and once a pause.
    textual.app.wait_for_idle, textual.pilot.wait_for_idle = _is_drawn, _is_at_rest
    textual.pilot.Pilot._wait_for_screen = _is_done
    Stylesheet._parse_rules = _parse_once
