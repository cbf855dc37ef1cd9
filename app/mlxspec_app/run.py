"""The ways to run the app, from the settings of its process to the text that it leaves behind.

`run_chat` talks to a session that the caller makes; `run_replay` plays a recorded trace and
`run_race` two of them, which needs no MLX. All return a process exit code. Each imports its own
screen alone, as the time to the first frame is mostly imports.
"""

import gc
import sys
from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING

from textual.screen import Screen

from mlxspec_app.app import THEME_NAMES, MlxspecApp
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.conversation.session import Session
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.picker.introduction import Introduction
from mlxspec_app.settings.keys.choices import all_bindings
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.user_data import Desk, find_desk

if TYPE_CHECKING:
    from mlxspec_app.playback.race import Race

_FULL_AFTER = 200  # collections of the middle generation; 10 by default
_ROLES = {"user": "you"}


def open_desk(data_dir: str | PathLike[str] | None = None) -> Desk:
    """Return the user's desk, whose settings name themes and actions of this app.

    Args:
        data_dir: What `--data-dir` names.
    """
    return find_desk(data_dir, themes=THEME_NAMES, key_ids=all_bindings())


def run_chat(
    make_session: Callable[[], Session],
    *,
    desk: Desk | None = None,
    theme: str | None = None,
    inline: bool = False,
    continues: bool = False,
    introduce: Callable[[], Introduction] | None = None,
) -> int:
    """Run the chat until the user quits, leave its text in the scrollback, return the exit code.

    Args:
        make_session: Returns a session that has not been started.
        desk: Holds the settings and the chats; None keeps none.
        theme: Name of the theme, one of `THEME_NAMES` or of Textual's own.
        inline: Whether to stand below the shell's prompt instead of taking the whole terminal.
        continues: Whether to go on with the last chat of the desk.
        introduce: Finds what a newcomer is told, in a thread.
    """
    from mlxspec_app.screens.chat import ChatScreen

    session = make_session()
    screens: list[ChatScreen] = []

    def make_screen() -> ChatScreen:
        screens.append(ChatScreen(session, desk, introduce, continues=continues))
        return screens[-1]

    if desk is not None:
        desk.keeps_chats = True
    code = _run(session, make_screen, theme, desk, inline=inline)
    return _leave(screens[-1].state, code) if screens else code


def run_replay(
    path: str | PathLike[str],
    speed: float = 1.0,
    *,
    desk: Desk | None = None,
    theme: str | None = None,
) -> int:
    """Play a trace file until the user quits and return the exit code.

    Args:
        path: The trace.
        speed: Recorded seconds that pass in a second.
        desk: Holds the settings; without one they are the usual ones.
        theme: Name of the theme.

    Raises:
        TraceError: The trace cannot be read.
        ValueError: The speed is not above 0.
    """
    from mlxspec_app.playback.replay import ReplaySession
    from mlxspec_app.screens.replay import ReplayScreen

    if not speed > 0:
        raise ValueError(f"the replay speed is {speed}; it has to be above 0, 1 is as recorded")
    session = ReplaySession.from_file(path, speed)
    return _run(session, lambda: ReplayScreen(session), theme, desk)


def run_race(race: "Race", *, desk: Desk | None = None, theme: str | None = None) -> int:
    """Play a race until the user quits and return the exit code.

    Args:
        race: Two recorded runs.
        desk: Holds the settings; without one they are the usual ones.
        theme: Name of the theme.
    """
    from mlxspec_app.screens.race import RaceScreen

    app = MlxspecApp(lambda: RaceScreen(race), theme, desk)
    collect_rarely()
    app.run()
    if desk is not None:
        desk.close()
    return app.return_code or 0


def _run(
    session: Session,
    make_screen: Callable[[], Screen[None]],
    theme: str | None,
    desk: Desk | None = None,
    *,
    inline: bool = False,
) -> int:
    app = MlxspecApp(make_screen, theme, desk)
    collect_rarely()
    try:
        app.run(inline=inline)
    finally:
        session.close()
        if desk is not None:
            desk.close()
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


def collect_rarely() -> None:
    """Collect garbage from now on, in this process, and make full collections rarer.

    A full collection walks every object, and an open conversation holds a hundred thousand of
    them: at the interpreter's own rate it runs every few seconds while text streams in, for longer
    than a frame each time. What Textual leaves behind in reference cycles is small, so full
    collections can wait twenty times as long; those of young objects, which find most of it, stay
    as they are.
    """
    gc.enable()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_AFTER)


def as_plain_text(messages: Iterable[Message]) -> str:
    """Return the messages, each below its role and an empty line between; "" for none.

    Roles are marked as the plain chat marks them. The text goes to a terminal, so it is made
    harmless like everything that is drawn.
    """
    return "\n\n".join(_told(message) for message in messages)


def _told(message: Message) -> str:
    name = _ROLES.get(message.role, message.role)
    lines = [f"{safe_line(name)}> {safe_text(message.text).rstrip()}".rstrip()]
    if isinstance(message, Reply):
        lines += [f"[{note}]" for note in _notes(message)]
    return "\n".join(lines)


def _notes(reply: Reply) -> list[str]:
    """Return what the text alone does not show: that it is not whole."""
    if reply.error:
        return [f"the reply broke off: {safe_line(reply.error)}"]
    if not reply.is_finished:
        return ["unfinished"]
    return ["stopped"] if reply.reason == "cancelled" else []
