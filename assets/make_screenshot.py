"""Make the picture in the README from a recorded chat: `python assets/make_screenshot.py`.

The app itself draws it: the recording is replayed to its end without a terminal, the statistics
and the draft tree are opened, and the screen is exported as SVG. Needs no model.
"""

import asyncio
import re
from pathlib import Path

from mlxspec.trace import read_trace
from mlxspec_app.app import MlxspecApp
from mlxspec_app.replay import ReplaySession
from mlxspec_app.screens.replay import ReplayScreen

ASSETS = Path(__file__).parent
SIZE = (132, 38)
_OUTSIDE = re.compile(r"@font-face\s*\{.*?\}|<!--.*?-->", re.DOTALL)  # fonts from the network


async def draw(trace: Path, picture: Path) -> None:
    """Replay `trace` to its last rounds and write what the screen shows to `picture`."""
    now = 0.0
    session = ReplaySession(read_trace(trace), autoplay=True, clock=lambda: now)
    app = MlxspecApp(lambda: ReplayScreen(session))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f3", "f4")
        now = session.duration
        for _ in range(4):  # the events, the layout, the panels, the scroll position
            app.screen.tick()
            app.screen.update_panels()
            await pilot.pause()
        svg = app.export_screenshot(title="mlxspec")
        picture.write_text(_OUTSIDE.sub("", svg), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(draw(ASSETS / "chat.jsonl", ASSETS / "chat.svg"))
