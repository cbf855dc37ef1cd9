"""Handles Ctrl+C in a chat, and keeps text that was typed but not sent.

Ctrl+C stops the reply, else it clears the prompt, whose text the history keeps, else a second press
quits. Unsent text is saved while the user types, so it survives a closed terminal.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.user.files import make_private_folder, replace_file
from mlxspec_app.widgets.chat.prompt import Prompt

QUIT_S = 3.0
"""A second press within this time quits."""

_WRITE_EVERY_S = 1.0  # while the user types, instead of once a letter


class Leaving:
    """Leaves a chat step by step without losing text."""

    def __init__(
        self, feed: Feed, screen: ConversationScreen, unsent: Path | None, stop: Callable[[], bool]
    ) -> None:
        """Keep text in the file `unsent`, if any.

        `stop` stops what the user can stop, and returns whether there was anything.
        """
        self._feed, self._screen, self._unsent, self._stop = feed, screen, unsent, stop
        self._prompt: Prompt | None = None
        self._may_quit = self._writes_soon = False

    def begin(self) -> None:
        """Put the unsent text of the last start back into the prompt."""
        # when the app ends, the screen has no widgets any more
        self._prompt = self._screen.query_one(Prompt)
        if self._unsent is not None:
            self._prompt.restore(take_text(self._unsent))

    def interrupt(self) -> None:
        may_quit, self._may_quit = self._may_quit, False
        prompt = self._screen.query_one(Prompt)
        if self._stop():
            return
        if prompt.text:
            prompt.set_aside()
        elif may_quit:
            self._screen.action_quit()
        else:
            self._may_quit = True
            self._screen.set_timer(QUIT_S, self._stay)
            self._screen.notify("Ctrl+C again quits", timeout=QUIT_S)

    def follow_text(self) -> None:
        self._may_quit = False
        if self._unsent is not None and not self._writes_soon:
            self._writes_soon = True
            self._screen.set_timer(_WRITE_EVERY_S, self._write_now)

    def end(self) -> None:
        """Save the unsent text, because the app ends."""
        self._write(self._text)

    @property
    def _text(self) -> str:
        """All unsent text: queued messages, then the prompt."""
        typed = self._prompt.unsent if self._prompt is not None else ""
        return "\n".join(part for part in (*self._feed.state.queue, typed) if part)

    def _write_now(self) -> None:
        self._writes_soon = False
        self._screen.run_beside(partial(asyncio.to_thread, self._write, self._text))

    def _write(self, text: str) -> None:
        if self._unsent is not None:
            with suppress(OSError):  # the store reports disk errors
                keep_text(self._unsent, text)

    def _stay(self) -> None:
        self._may_quit = False


def take_text(path: Path) -> str:
    """Return the text of a file and remove it; "" if there is none or it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        path.unlink()
    except (OSError, UnicodeDecodeError):
        return ""
    return text


def keep_text(path: Path, text: str) -> None:
    """Store a text in a private file, in place of the previous one; "" removes the file."""
    if text.strip():
        make_private_folder(path.parent)
        replace_file(path, text.encode("utf-8", errors="replace"))
    else:
        path.unlink(missing_ok=True)
