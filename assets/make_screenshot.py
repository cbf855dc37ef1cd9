"""Draw the pictures of README and guide: `python assets/make_screenshot.py [NAME ...]`.

The app itself draws them: recorded traces are played without a terminal, keys are pressed as a
user would, and the screen is exported as SVG; the race in motion is that of `mlxspec race`.
Needs no model. `record.py` makes the traces; to have all of it anew, on a machine that does
nothing else:

    python assets/record.py && python assets/make_screenshot.py
"""

import asyncio
import math
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from textual.screen import Screen

from mlxspec.trace.events import TurnStarted
from mlxspec.trace.file import read_trace
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.export.race import animation as render_race
from mlxspec_app.export.recording import Recording
from mlxspec_app.playback.race import open_race
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.playback.timeline import Timeline
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.screens.race import RaceScreen
from mlxspec_app.screens.replay import ReplayScreen

ASSETS = Path(__file__).parent
NARROW, WIDE = (100, 32), (132, 38)
_FRAMES = 4  # the events, the layout, the panels, the scroll position
_FITTING = 8  # branches of a tree: its panel shows most of them, and says how many it does not
_MOMENT_S = 1e-3  # after a verdict, so that it is shown
_OUTSIDE = re.compile(r"@font-face\s*\{.*?\}|<!--.*?-->", re.DOTALL)  # fonts from the network


class Stage:
    """An app without a terminal, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._pilot: Pilot[None] | None = None

    @asynccontextmanager
    async def play(
        self, make_screen: Callable[[], Screen[None]], size: tuple[int, int]
    ) -> AsyncIterator[MlxspecApp]:
        """Run the app on a screen of this many columns and rows."""
        app = MlxspecApp(make_screen, "mint")  # whatever the colours of this terminal
        async with app.run_test(size=size) as self._pilot:
            await self.settle()
            yield app

    async def press(self, *keys: str) -> None:
        assert self._pilot is not None
        await self._pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        """Let the screen take in what happened, and show it."""
        assert self._pilot is not None
        for _ in range(_FRAMES):
            screen = self._pilot.app.screen
            if isinstance(screen, ConversationScreen | RaceScreen):
                screen.tick()
                screen.update_panels()
            await self._pilot.pause()


async def chat(name: str, *keys: str, size: tuple[int, int] = NARROW, turns: int = 99) -> str:
    """Return a chat with the first turns of a trace, after some keys."""
    stage = Stage()
    events = list(read_trace(ASSETS / f"{name}.jsonl"))
    said = [number for number, event in enumerate(events) if isinstance(event, TurnStarted)]
    shown = events[: [*said, len(events)][min(turns, len(said))]]
    session = ReplaySession(shown, speed=math.inf, clock=lambda: stage.now)
    async with stage.play(lambda: ChatScreen(session), size) as app:
        await stage.press(*keys)
        return _picture(app)


async def replay(name: str, share: float, *keys: str, size: tuple[int, int] = WIDE) -> str:
    """Return a replay that was played to a share of its time, after some keys."""
    stage = Stage()
    session = ReplaySession(read_trace(ASSETS / f"{name}.jsonl"), clock=lambda: stage.now)
    async with stage.play(lambda: ReplayScreen(session), size) as app:
        stage.now = session.timeline.duration * share
        await stage.settle()
        await stage.press(*keys)
        return _picture(app)


def fullest_tree(name: str) -> float:
    """Return the share of a trace's time after which the fullest draft tree that fits is shown."""
    recording = Recording.read(ASSETS / f"{name}.jsonl")
    (reply,) = recording.replies
    trees = [round_ for round_ in reply.rounds if round_.accepted and _branches(round_) <= _FITTING]
    verdict = max(trees, key=_branches).verdict
    return (verdict.ts + _MOMENT_S) / Timeline(recording.events).duration


def _branches(round_: Round) -> int:
    return len(round_.nodes) - len({node.parent for node in round_.nodes}) + 1


async def race(names: tuple[str, str], share: float, *keys: str) -> str:
    """Return a race of two traces that was played to a share of its time, after some keys."""
    stage = Stage()
    run = open_race([ASSETS / f"{name}.jsonl" for name in names], clock=lambda: stage.now)
    async with stage.play(lambda: RaceScreen(run), WIDE) as app:
        stage.now = run.duration * share
        await stage.settle()
        await stage.press(*keys)
        return _picture(app)


async def animated_race(plain: str, drafted: str) -> str:
    """Return a race that plays by itself."""
    paths = [ASSETS / f"{name}.jsonl" for name in (plain, drafted)]
    return render_race(open_race(paths, clock=lambda: 0.0))


def _picture(app: MlxspecApp) -> str:
    return _OUTSIDE.sub("", app.export_screenshot(title="mlxspec"))


PICTURES: dict[str, Callable[[], Awaitable[str]]] = {
    "chat": lambda: chat("chat", "f3", "f4", size=WIDE, turns=2),
    "tree": lambda: replay("sampling", fullest_tree("sampling"), "space", "f3", "f4"),
    "replay": lambda: replay("code", 0.4, "space", "f3", "right_curly_bracket", size=NARROW),
    "race": lambda: race(("code-plain", "code"), 0.3),
    "race.animation": lambda: animated_race("code-plain", "code"),
}


async def draw(names: list[str]) -> None:
    """Draw the named pictures."""
    for name in names:
        (ASSETS / f"{name}.svg").write_text(await PICTURES[name](), encoding="utf-8")


if __name__ == "__main__":
    os.environ.pop("NO_COLOR", None)
    asyncio.run(draw(sys.argv[1:] or list(PICTURES)))
