"""Every word on every screen can be read, in 80 columns and with 256 colours as without limits.

The measure is outside the app: a contrast of 4.5 or more, as WCAG 2.1 asks of text.
"""

import re

import pytest

from tests.app.test_snapshots import SCREENS, Look, staged
from tests.app.test_themes import contrast, fewer

LOOKS = [Look(name, (80, 24), name) for name in ("mint", "day", "dusk", "contrast")]
OVERLAYS = ("help", "context", "context-full")  # what lies below them is dimmed on purpose
LEAST = 4.5
MARKS = ("python",)  # what opens a block of code is drawn dim, as all marks of Markdown


def words(screen):
    """Yield each word on a screen with its colour and its background."""
    for strip in screen._compositor.render_strips():
        for text, style, _ in strip:
            if style is None or text in MARKS or not re.search(r"\w", text):
                continue
            colour, ground = style.color, style.bgcolor
            if style.reverse:
                colour, ground = ground, colour
            yield text, colour.name, ground.name


@pytest.mark.parametrize("name", [name for name in SCREENS if name not in OVERLAYS])
async def test_every_word_can_be_read(name, tmp_path, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    async with staged(name, LOOKS[0], tmp_path) as stage:
        for look in LOOKS:
            await stage.wear(look)
            found = set(words(stage.app.screen))
            assert found
            faint = [
                (text, colour, ground)
                for text, colour, ground in found
                if contrast(colour, ground) < LEAST
                or contrast(fewer(colour), fewer(ground)) < LEAST
            ]
            assert faint == [], look.name
