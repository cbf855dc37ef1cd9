"""Handles Ctrl+C in a chat, and keeps text that was typed but not sent.

Ctrl+C stops the reply, else it clears the prompt, whose text the history keeps, else a second press
quits the app. Unsent text returns to the prompt at the next start. It is saved while the user
types, so it survives a closed terminal.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.user.unsent import UnsentText
from mlxspec_app.widgets.chat.prompt import Prompt

QUIT_S = 3.0
"""A second press within this time quits."""

_WRITE_EVERY_S = 1.0  # while the user types, instead of once a letter


class Leaving:
    """Leaves a chat step by step without losing text."""

    def __init__(
        self,
        feed: Feed,
        screen: ConversationScreen,
        unsent: UnsentText | None,
        stop: Callable[[], bool],
    ) -> None:
        """Prepare for a screen that may not be mounted yet.

        Without `unsent`, no text is kept. `stop` stops what the user can stop, and returns whether
        there was anything.
        """
        self._feed, self._screen, self._unsent, self._stop = feed, screen, unsent, stop
        self._prompt: Prompt | None = None
        self._may_quit = self._writes_soon = False

    def begin(self) -> None:
        """Put the unsent text of the last start back into the prompt."""
        # when the app ends, the screen has no widgets any more
        self._prompt = self._screen.query_one(Prompt)
        if self._unsent is not None:
            self._prompt.restore(self._unsent.take())

    def interrupt(self) -> None:
        """Handle Ctrl+C."""
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
        """Save the changed text of the prompt."""
        self._may_quit = False
        if self._unsent is not None and not self._writes_soon:
            self._writes_soon = True
            self._screen.set_timer(_WRITE_EVERY_S, self._write_now)

    def end(self) -> None:
        """Save the unsent text, because the app ends."""
        self._write(self._text)

    @property
    def _text(self) -> str:
        """Return all unsent text: queued messages, then the prompt."""
        typed = self._prompt.unsent if self._prompt is not None else ""
        return "\n".join(part for part in (*self._feed.state.queue, typed) if part)

    def _write_now(self) -> None:
        self._writes_soon = False
        self._screen.run_beside(partial(asyncio.to_thread, self._write, self._text))

    def _write(self, text: str) -> None:
        if self._unsent is not None:
            with suppress(OSError):  # the store reports disk errors
                self._unsent.keep(text)

    def _stay(self) -> None:
        self._may_quit = False
