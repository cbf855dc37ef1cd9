"""Every screen looks as it did; one of them in every theme, at three sizes and without colour.

A screen is one entry of `SCREENS`: what it takes to get there from its beginning. To accept what
changed, look at the new pictures and run `pytest --update-snapshots tests/app/test_snapshots.py`.

Every word on it can be read, in 80 columns and with 256 colours as without limits. The measure is
outside the app: a contrast of 4.5 or more, as WCAG 2.1 asks of text.
"""

import re
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlxspec.trace.file import read_trace
from mlxspec_app import app as app_module
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.events import (
    ModelChoice,
    SessionFailed,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.playback.race import Race, Track
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.screens.chat.context_full import ContextFullScreen
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.screens.first_run import FirstRunScreen
from mlxspec_app.screens.history import HistoryScreen
from mlxspec_app.screens.models import ModelsScreen
from mlxspec_app.screens.race import RaceScreen
from mlxspec_app.screens.replay import ReplayScreen
from mlxspec_app.store.thread import StoreThread
from mlxspec_app.user_data import find_user_data
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.app.test_themes import contrast, fewer
from tests.support.answering_replay import AnsweringReplay
from tests.support.app_driver import Clock, Driver
from tests.support.app_pictures import FOLDER, Pictures, picture
from tests.support.fake_catalogue import FakeCatalogue
from tests.support.paths import TRACES
from tests.support.race_runs import decoded_plainly
from tests.support.scripted_session import ScriptedSession
from tests.support.user_data_files import fill
from tests.traces import make_fake

TREE = list(read_trace(TRACES / "tree.jsonl"))
OPENING = SessionOpening("SmolLM2-135M-Instruct", "pool", ModelChoice("", "pool"))
CHAT = list(read_trace(TRACES / "chat.jsonl"))


@dataclass(frozen=True)
class Look:
    """How a screen is to look."""

    name: str
    size: tuple[int, int]
    theme: str = "mint"


USUAL = Look("middle", (100, 30))
OTHERS = (
    Look("day", (100, 30), "day"),
    Look("small", (60, 20)),
    Look("large", (140, 45)),
    Look("sixteen", (100, 30), "terminal"),
)
IN_EVERY_LOOK = "chat-xray"
READ = tuple(Look(name, (80, 24), name) for name in ("mint", "day", "dusk", "contrast"))
OVERLAYS = ("help", "context", "context-full")  # what lies below them is dimmed on purpose
LEAST = 4.5
MARKS = ("python",)  # what opens a block of code is drawn dim, as all marks of Markdown
NO_COLOR = Look("no-color", (100, 30))


@dataclass
class Props:
    """What a screen may need to begin: a clock that stands still, a folder, and who closes it."""

    clock: Clock
    folder: Path
    after: ExitStack


class Stage(Driver):
    """A running app with a clock that stands still."""

    async def settle(self):
        """Let the screen take in what happened until it changes no more."""
        last, same = None, 0
        for _ in range(50):
            await super().settle()
            await self.pilot.pause()  # as long as the screen is refreshed by itself
            drawn = [list(strip) for strip in self.app.screen._compositor.render_strips()]
            last, same = drawn, same + 1 if drawn == last else 0
            if same == 2:
                return
        raise AssertionError(f"the screen never came to rest:\n{self.shown}")

    async def ask(self, text, seconds=100.0):
        await self.say(text)
        await self.wait(seconds)

    async def press(self, *keys):
        for key in keys:
            await super().press(key)

    async def wear(self, look):
        """Have the app look so while it runs."""
        self.app.theme = look.theme
        await self.pilot.resize_terminal(*look.size)
        await self.settle()


def chat(events=CHAT, speed=1.0):
    return lambda props: ChatScreen(AnsweringReplay(events, speed=speed, clock=props.clock))


def replay(props):
    return ReplayScreen(ReplaySession(TREE, clock=props.clock))


def race(props):
    return RaceScreen(Race([Track("A", decoded_plainly(TREE)), Track("B", TREE)], props.clock))


def history(props):
    titles = ("Name three rivers of Europe.", "Write a poem about rain.", "Sort a list in Python.")
    fill(props.folder, *titles, replies=("Here is an answer.", "Another one."))
    store = StoreThread(props.folder / "chats.sqlite3", props.folder / "traces", lambda text: None)
    props.after.callback(store.close)
    store.start()
    return HistoryScreen(store)


def models(props):
    state = fold([OPENING, SessionReady()])
    return ModelsScreen(find_user_data(FOLDER), FakeCatalogue(), state, lambda order: None)


def no_model(props):
    return ChatScreen(ScriptedSession(OPENING, SessionFailed("it is not here: connect")))


async def nothing(stage):
    pass


async def once_read(stage):
    for _ in range(2):  # what was read may have more read
        await stage.app.workers.wait_for_complete()
        await stage.settle()


async def in_the_middle(stage):
    await stage.ask(make_fake.PROSE[:40], seconds=0.6)


async def to_the_end(stage):
    await stage.ask("Explain speculative decoding in a few sentences.")
    await stage.ask("Write a function that merges two sorted lists.")


async def with_views(stage):
    await stage.ask("What is a draft tree?")
    await stage.press("f3", "f4")


async def in_the_x_ray(stage):
    await to_the_end(stage)
    await stage.ask("/view xray", seconds=0)


async def pointing(stage):
    await to_the_end(stage)
    await stage.press("tab", "left_square_bracket", "left")
    stage.screen.query_one(Transcript).scroll_end(animate=False)  # wherever the inspector left it
    await stage.settle()


async def between_phases(stage):
    await stage.press("f3", "space")
    await stage.wait(0.9)
    await stage.press("space", "right")


async def at_half_time(stage):
    await stage.press("space")
    await stage.wait(0.9)
    await stage.press("space")


async def asking_for_help(stage):
    await stage.press("f1")


async def changing_settings(stage):
    await stage.press("f5", "down", "down")


async def asked_about_the_context(stage):
    await to_the_end(stage)
    await stage.app.push_screen(ContextFullScreen(("drop", "rotate", "new"), 8192))
    await stage.settle()


async def looking_into_the_context(stage):
    await to_the_end(stage)
    await stage.ask("/context")


async def introduced(stage):
    await stage.app.push_screen(FirstRunScreen(fold([OPENING, SessionReady()])))
    await stage.settle()


SCREENS = {
    "welcome": (chat(), nothing),
    "chat-streaming": (chat(), in_the_middle),
    "chat-finished": (chat(), to_the_end),
    "chat-xray": (chat(), in_the_x_ray),
    "chat-views": (chat(TREE), with_views),
    "chat-inspector": (chat(), pointing),
    "replay": (replay, between_phases),
    "race": (race, at_half_time),
    "help": (chat(), asking_for_help),
    "history": (history, once_read),
    "models": (models, once_read),
    "settings": (chat(), changing_settings),
    "first-run": (chat(), introduced),
    "context": (chat(), looking_into_the_context),
    "context-full": (chat(), asked_about_the_context),
    "no-model": (no_model, nothing),
}


@asynccontextmanager
async def staged(name, look, folder):
    """Run a screen with everything still that could differ from run to run."""
    make_screen, act = SCREENS[name]
    with ExitStack() as after:
        props = Props(Clock(), folder, after)
        app = MlxspecApp(lambda: make_screen(props), look.theme)
        app.animation_level = "none"
        async with app.run_test(size=look.size) as pilot:
            stage = Stage(pilot, None, props.clock)
            await stage.settle()
            await act(stage)
            yield stage


@pytest.fixture(autouse=True)
def _takes_unicode_and_colour(monkeypatch):
    monkeypatch.setattr(app_module, "terminal_takes_unicode", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)


def faint(screen):
    """The words on a screen that cannot be read, each with its colour and its background."""
    found = set()
    for strip in screen._compositor.render_strips():
        for text, style, _ in strip:
            if style is not None and text not in MARKS and re.search(r"\w", text):
                pair = (style.color.name, style.bgcolor.name)
                found.add((text, *(pair[::-1] if style.reverse else pair)))
    assert found
    return {
        (text, colour, ground)
        for text, colour, ground in found
        if contrast(colour, ground) < LEAST or contrast(fewer(colour), fewer(ground)) < LEAST
    }


@pytest.mark.parametrize("name", SCREENS)
async def test_a_screen_looks_as_it_did_and_every_word_can_be_read(name, pictures, tmp_path):
    async with staged(name, USUAL, tmp_path) as stage:
        for look in (USUAL, *(OTHERS if name == IN_EVERY_LOOK else ())):
            await stage.wear(look)
            pictures.check(f"{name}-{look.name}", stage.app)
        for look in () if name in OVERLAYS else READ:
            await stage.wear(look)
            assert faint(stage.app.screen) == set(), look.name
    pictures.tell()


async def test_a_screen_looks_as_it_did_without_colour(pictures, monkeypatch, tmp_path):
    monkeypatch.setenv("NO_COLOR", "1")
    async with staged(IN_EVERY_LOOK, NO_COLOR, tmp_path) as stage:
        pictures.check(f"{IN_EVERY_LOOK}-{NO_COLOR.name}", stage.app)
    pictures.tell()


def test_every_picture_is_of_a_screen(pictures):
    known = {f"{name}-{USUAL.name}" for name in SCREENS}
    known |= {f"{IN_EVERY_LOOK}-{look.name}" for look in (*OTHERS, NO_COLOR)}
    for path in FOLDER.glob("*.svg"):
        if pictures.renews and path.stem not in known:
            path.unlink()
    assert {path.stem for path in FOLDER.glob("*.svg")} <= known


DRAWN = "<svg>\n<text>one</text>\n</svg>\n"


def test_a_picture_that_differs_is_named_with_the_place_of_the_new_one(tmp_path):
    known, failed = tmp_path / "known", tmp_path / "failed"
    failed.mkdir()
    Pictures(known, failed, renews=True).compare("page", DRAWN)
    checker = Pictures(known, failed, renews=False)
    checker.compare("page", DRAWN)
    checker.tell()
    checker.compare("page", DRAWN.replace("one", "two"))
    checker.compare("other", DRAWN)
    with pytest.raises(AssertionError) as told:
        checker.tell()
    for words in (
        f"{known / 'page.svg'} differs",
        str(failed / "page.svg"),
        "-<text>one</text>\n+<text>two</text>",
        f"{known / 'other.svg'} does not exist",
        "--update-snapshots",
    ):
        assert words in str(told.value)
    assert (failed / "page.svg").read_text() == DRAWN.replace("one", "two")
    assert (known / "page.svg").read_text() == DRAWN


async def test_a_picture_depends_on_nothing_but_the_screen(tmp_path):
    drawn = []
    for title in ("one", "two"):
        async with staged("chat-finished", USUAL, tmp_path) as stage:
            stage.app.title = title  # goes into the identifiers of a screenshot
            drawn.append((stage.app.export_screenshot(), picture(stage.app.export_screenshot())))
    (raw, first), (other_raw, second) = drawn
    assert raw != other_raw
    assert first == second
    assert "merge" in first
    assert "http" not in first.replace("http://www.w3.org/2000/svg", "")
