"""Drives the app in tests: a manual clock, and the screen as text."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from textual.pilot import Pilot
from textual.screen import Screen

from mlxspec.trace.events import Event
from mlxspec_app.app import MlxspecApp
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.screens.replay import ReplayScreen
from mlxspec_app.sessions.session import Session
from mlxspec_app.user_data import UserData
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.answering_replay import AnsweringReplay
from tests.traces import make_fake

START_S = 20.0  # at most, on a busy machine
_LOOK_S = 0.01  # between two looks at a screen that shows nothing yet
_MOST_LOOKS = 500
_REFRESH_S = 1.0  # at most, until a refresh


class Clock:
    """A clock that moves only by calls of the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Driver:
    """A running app, its session and its clock."""

    def __init__(self, pilot: Pilot[None], session: Session, clock: Clock) -> None:
        self.pilot = pilot
        self.session = session
        self.clock = clock

    @property
    def app(self) -> MlxspecApp:
        app = self.pilot.app
        assert isinstance(app, MlxspecApp)
        return app

    @property
    def screen(self) -> ConversationScreen:
        screen = self.app.screen
        assert isinstance(screen, ConversationScreen)
        return screen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def say(self, text: str) -> None:
        self.screen.query_one(Prompt).text = text
        await self.press("enter")

    async def wait(self, seconds: float) -> None:
        """Advance the clock of the session, then let the screen update."""
        self.clock.now += seconds
        await self.settle()

    async def settle(self) -> None:
        """Let the screen handle the events, lay itself out, and draw the result.

        What it handles may open another screen, which has nothing to show until it is laid out.
        """
        for _ in range(_MOST_LOOKS):
            screen = self.app.screen
            if hasattr(screen, "tick"):
                screen.tick()
                await self._refreshed(screen)
            if hasattr(screen, "update_panels"):
                screen.update_panels()
            await self.pilot.pause(0)
            if self.app.screen is screen and screen._compositor.size:
                return
            await self.pilot.pause(_LOOK_S)

    async def _refreshed(self, screen: Screen[None]) -> None:
        """Wait until all has run that waits for the next refresh of a screen, if it has one."""
        done = asyncio.Event()
        screen.call_after_refresh(done.set)
        with suppress(TimeoutError):  # an app that ends refreshes no more
            await asyncio.wait_for(done.wait(), _REFRESH_S)
        await self.pilot.pause(0)

    @property
    def shown(self) -> str:
        """All characters on the screen, row by row."""
        return "\n".join(rows(self.app.screen))


def rows(screen: Screen[None]) -> list[str]:
    """Return the characters of each row of a screen, as the terminal would get them."""
    strips = screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip) for strip in strips]


@asynccontextmanager
async def chat(
    events: Iterable[Event] | None = None,
    *,
    speed: float = math.inf,
    size: tuple[int, int] = (100, 30),
    theme: str | None = None,
    user_data: UserData | None = None,
    view: str = "",
) -> AsyncIterator[Driver]:
    """Run the chat over a recording that answers each message with its next reply."""
    clock = Clock()
    recorded = make_fake.chat() if events is None else events
    session = AnsweringReplay(recorded, speed=speed, clock=clock)
    async with running(session, clock, size, theme, user_data) as driver:
        if view:
            await driver.say(f"/view {view}")
        yield driver


@asynccontextmanager
async def running(
    session: Session,
    clock: Clock | None = None,
    size: tuple[int, int] = (100, 30),
    theme: str | None = None,
    user_data: UserData | None = None,
    introduces: bool = False,
) -> AsyncIterator[Driver]:
    """Run the chat over any session."""

    def make_screen() -> ChatScreen:
        return ChatScreen(session, user_data, introduces=introduces)

    app = MlxspecApp(make_screen, theme, user_data)
    begun = noting_start(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = Driver(pilot, session, clock or Clock())
        await asyncio.wait_for(begun.wait(), START_S)
        await driver.settle()
        yield driver


def noting_start(session: Session) -> asyncio.Event:
    """Return an event that is set once the session has started: the chat draws a frame first."""
    start, begun = session.start, asyncio.Event()

    def started() -> None:
        start()
        begun.set()

    session.start = started
    return begun


@asynccontextmanager
async def replay(
    events: Iterable[Event], *, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[Driver]:
    """Run the replay screen over a recording."""
    clock = Clock()
    session = ReplaySession(events, clock=clock)
    app = MlxspecApp(lambda: ReplayScreen(session))
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = Driver(pilot, session, clock)
        await driver.settle()
        yield driver


def texts(driver: Driver) -> list[str]:
    """Return the text of every message of the conversation."""
    return [message.text for message in driver.screen.state.messages]
