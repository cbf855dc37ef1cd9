"""The app: themes, the first screen, and the ways to run it.

`run_chat` talks to a session that the caller makes; `run_replay` plays a recorded trace and
`run_race` two of them, which needs no MLX. All return a process exit code. Each imports its own
screen alone, as the time to the first frame is mostly imports.
"""

import os
import sys
from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from mlxspec_app.pauses import collect_rarely
from mlxspec_app.replay import ReplaySession
from mlxspec_app.safe_text import safe_text
from mlxspec_app.scrollback import as_plain_text
from mlxspec_app.session import Session
from mlxspec_app.state import ChatState
from mlxspec_app.themed_app import ThemedApp
from mlxspec_app.themes import THEMES

if TYPE_CHECKING:
    from mlxspec_app.desk import Desk
    from mlxspec_app.race import Race

THEME_NAMES = tuple(theme.name for theme in THEMES)


class MlxspecApp(ThemedApp):
    """A Textual app around one screen."""

    TITLE = "mlxspec"
    CSS_PATH = "app.tcss"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-narrow"),
        (100, "-wide"),
        (140, "-xwide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (26, "-tall")]  # noqa: RUF012

    def __init__(self, make_screen: Callable[[], Screen[None]], theme: str | None = None) -> None:
        """Make the app.

        Args:
            make_screen: Returns the screen to show.
            theme: Name of the theme; without one, TEXTUAL_THEME decides, else the first theme.
        """
        super().__init__()
        wanted = theme or os.environ.get("TEXTUAL_THEME", "")
        self.theme = wanted if wanted in self.available_themes else THEME_NAMES[0]
        self._make_screen = make_screen

    def get_default_screen(self) -> Screen[Any]:
        return self._make_screen()


def run_chat(
    make_session: Callable[[], Session],
    *,
    desk: "Desk | None" = None,
    theme: str | None = None,
    inline: bool = False,
    continues: bool = False,
) -> int:
    """Run the chat until the user quits, leave its text in the scrollback, return the exit code.

    Args:
        make_session: Returns a session that has not been started.
        desk: Where the chats are kept; None keeps none.
        theme: Name of the theme, one of `THEME_NAMES` or of Textual's own.
        inline: Whether to stand below the shell's prompt instead of taking the whole terminal.
        continues: Whether to go on with the last chat of the desk.
    """
    from mlxspec_app.screens.chat import ChatScreen

    session = make_session()
    screens: list[ChatScreen] = []

    def make_screen() -> ChatScreen:
        screens.append(ChatScreen(session, desk, continues=continues))
        return screens[-1]

    if desk is not None:
        desk.keep_chats_of(session)
    try:
        code = _run(session, make_screen, theme, inline=inline)
    finally:
        if desk is not None:
            desk.close()
    return _leave(screens[-1].state, code) if screens else code


def run_replay(path: str | PathLike[str], speed: float = 1.0, *, theme: str | None = None) -> int:
    """Play a trace file until the user quits and return the exit code.

    Args:
        path: The trace.
        speed: Recorded seconds that pass in a second.
        theme: Name of the theme.

    Raises:
        TraceError: The trace cannot be read.
        ValueError: The speed is not above 0.
    """
    from mlxspec_app.screens.replay import ReplayScreen

    if not speed > 0:
        raise ValueError(f"the replay speed is {speed}; it has to be above 0, 1 is as recorded")
    session = ReplaySession.from_file(path, speed)
    return _run(session, lambda: ReplayScreen(session), theme)


def run_race(race: "Race", *, theme: str | None = None) -> int:
    """Play a race until the user quits and return the exit code.

    Args:
        race: Two recorded runs.
        theme: Name of the theme.
    """
    from mlxspec_app.screens.race import RaceScreen

    app = MlxspecApp(lambda: RaceScreen(race), theme)
    collect_rarely()
    app.run()
    return app.return_code or 0


def _run(
    session: Session,
    make_screen: Callable[[], Screen[None]],
    theme: str | None,
    *,
    inline: bool = False,
) -> int:
    app = MlxspecApp(make_screen, theme)
    collect_rarely()
    try:
        app.run(inline=inline)
    finally:
        session.close()
    return app.return_code or 0


def _leave(state: ChatState, code: int) -> int:
    """Print what was said, and why it could not go on where that is so; return the exit code."""
    text = as_plain_text(state.messages)
    if text:
        encoding = sys.stdout.encoding  # a terminal may know fewer characters than the model
        print(text.encode(encoding, "replace").decode(encoding))
    if state.phase == "failed":
        print(f"mlxspec: {safe_text(state.error)}", file=sys.stderr)
        return code or 1
    return code
