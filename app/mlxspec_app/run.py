"""The functions that run the app until the user quits, and return a process exit code.

Without `user_data` they use default settings and store nothing. Each imports its own screen only,
because imports are most of the time to the first frame.
"""

import gc
import sys
from collections.abc import Callable, Iterable
from os import PathLike
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from textual.screen import Screen

from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.sessions.servers import FeedItem
from mlxspec_app.sessions.session import Session
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.text.word_wrap import WordWrapper
from mlxspec_app.user_data import UserData

if TYPE_CHECKING:
    from mlxspec_app.playback.race import Race

_FULL_AFTER = 200  # collections of the middle generation; Python's default is 10
_ROLES = {"user": "you"}


def run_chat(
    make_session: Callable[[], Session],
    *,
    user_data: UserData | None = None,
    inline: bool = False,
    continues: bool = False,
    introduces: bool = False,
) -> int:
    """Run the chat and print its text.

    `make_session` returns a session that has not started. `inline` draws below the shell's prompt
    instead of on the whole terminal, `continues` opens the last chat, and `introduces` shows
    the first run.
    """
    from mlxspec_app.screens.chat.screen import ChatScreen

    session = make_session()
    screens: list[ChatScreen] = []

    def make_screen() -> ChatScreen:
        screens.append(ChatScreen(session, user_data, introduces=introduces, continues=continues))
        return screens[-1]

    if user_data is not None:
        user_data.stores_chats = True
    code = _run(make_screen, user_data, session, inline=inline)
    return _leave(screens[-1].state, code) if screens else code


def run_replay(
    path: str | PathLike[str], speed: float = 1.0, *, user_data: UserData | None = None
) -> int:
    """Play a trace file; `speed` is in recorded seconds per second.

    Raises:
        TraceError: The trace cannot be read.
        ValueError: The speed is not above 0.
    """
    from mlxspec_app.playback.replay import ReplaySession
    from mlxspec_app.screens.replay import ReplayScreen

    if not speed > 0:
        raise ValueError(f"the replay speed is {speed}; it has to be above 0, 1 is as recorded")
    session = ReplaySession.from_file(path, speed)
    return _run(lambda: ReplayScreen(session), user_data, session)


def run_race(race: "Race", *, user_data: UserData | None = None) -> int:
    """Play a race."""
    from mlxspec_app.screens.race import RaceScreen

    return _run(lambda: RaceScreen(race), user_data)


def run_watch(items: Iterable[FeedItem], url: str, *, user_data: UserData | None = None) -> int:
    """Show what the server at `url` writes; `items` is its feed."""
    from mlxspec_app.screens.watch import WatchScreen
    from mlxspec_app.sessions.watching import WatchSession

    session = WatchSession(items)
    return _run(lambda: WatchScreen(session, url), user_data, session)


def _run(
    make_screen: Callable[[], Screen[None]],
    user_data: UserData | None,
    session: Session | None = None,
    *,
    inline: bool = False,
) -> int:
    app = MlxspecApp(make_screen, user_data=user_data)
    collect_rarely()
    try:
        app.run(inline=inline)
    finally:
        if session is not None:
            session.close()
        if user_data is not None:
            user_data.close()
    return app.return_code or 0


def _leave(state: ChatState, code: int) -> int:
    """Print the conversation, and the error if the session failed; return the exit code."""
    text = as_plain_text(state.messages)
    if text:
        if sys.stdout.isatty():
            wrapper = WordWrapper(get_terminal_size().columns)
            text = wrapper.add(text) + wrapper.end()
        encoding = sys.stdout.encoding  # it may lack characters of the reply
        print(text.encode(encoding, "replace").decode(encoding))
    if state.phase == "failed":
        print(f"mlxspec: {safe_text(state.error)}", file=sys.stderr)
        return code or 1
    return code


def collect_rarely() -> None:
    """Turn garbage collection on in this process, with rarer full collections.

    One visits the hundred thousand objects of an open conversation and takes longer than a frame.
    At Python's default rate it runs every few seconds while text streams in.
    """
    gc.enable()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_AFTER)


def as_plain_text(messages: Iterable[Message]) -> str:
    """Return the messages, each after its role as in the plain chat, safe for a terminal."""
    return "\n\n".join(map(_message_text, messages))


def _message_text(message: Message) -> str:
    name = _ROLES.get(message.role, message.role)
    text = f"{safe_line(name)}> {safe_text(message.text).rstrip()}".rstrip()
    note = _note(message) if isinstance(message, Reply) else ""
    return f"{text}\n[{note}]" if note else text


def _note(reply: Reply) -> str:
    """Return a note if the reply is incomplete, which the text alone does not show; else ""."""
    if reply.error:
        return f"the reply was cut off: {safe_line(reply.error)}"
    if not reply.is_finished:
        return "unfinished"
    return {"cancelled": "stopped", "repeating": "stopped: repeating"}.get(reply.reason or "", "")
