"""The conversation: one widget per message, kept in step with the state.

It follows the newest text until the reader scrolls away, and follows again when the reader comes
back to the end; `unseen` counts what arrived meanwhile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.message import Message as Notice
from textual.widget import Widget

from mlxspec_app.inks import INKS, Ink
from mlxspec_app.keymap import TRANSCRIPT
from mlxspec_app.messages import Message, Reply
from mlxspec_app.token_cursor import TokenCursor, by_reply, by_round, by_token, last_token
from mlxspec_app.token_facts import TokenFacts, facts_of
from mlxspec_app.widgets.reply_footer import ReplyFooter
from mlxspec_app.widgets.token_message import TokenMessage


class Transcript(VerticalScroll, can_focus=False):
    """Shows the messages of a conversation, oldest first.

    Where the screen lets it be focused, single tokens can be pointed at.
    """

    BINDINGS: ClassVar[list[BindingType]] = list(TRANSCRIPT)

    @dataclass
    class Pointed(Notice):
        """Another token is pointed at, or none any more."""

        facts: TokenFacts | None

    DEFAULT_CSS = """
    Transcript {
        layout: stream;
        padding: 0 1;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        TokenMessage { margin: 1 0 0 0; }
        ReplyFooter { margin: 0 0 0 0; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        """Make an empty transcript."""
        super().__init__(id=id)
        self._messages: dict[int, TokenMessage] = {}
        self._footers: dict[int, ReplyFooter] = {}
        self._replies: list[Reply] = []
        self._cursor: TokenCursor | None = None
        self._ink = INKS[0]
        self._left_end = False
        self._seen_tokens = 0
        self._tokens = 0

    @property
    def unseen(self) -> int:
        """Tokens that arrived since the reader scrolled away; 0 while the end is in view."""
        return 0 if self.is_following else self._tokens - self._seen_tokens

    @property
    def is_following(self) -> bool:
        """Whether new text scrolls into view by itself."""
        return not self._left_end or self.max_scroll_y == 0

    def on_mount(self) -> None:
        self.watch(self, "show_vertical_scrollbar", self._anchor_when_full)

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._anchor_when_full(self.show_vertical_scrollbar)

    def release_anchor(self) -> None:
        super().release_anchor()
        self._left_end = True

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.is_vertical_scroll_end:
            self._left_end = False

    def set_ink(self, ink: Ink) -> None:
        self._ink = ink
        for widget in self._messages.values():
            widget.set_ink(ink)

    def sync(self, messages: Sequence[Message]) -> None:
        """Show these messages: drop widgets of others, add missing ones, append new text."""
        self._replies = [message for message in messages if isinstance(message, Reply)]
        numbers = {message.number for message in messages}
        for number in [n for n in self._messages if n not in numbers]:
            self._drop(number)
        fresh: list[Widget] = []
        for message in messages:
            if message.number not in self._messages:
                fresh += self._make(message)
        if fresh:
            self.mount(*fresh)
        for message in messages:
            self._extend(message)
        self._tokens = sum(len(message.spans) for message in messages)
        if self.is_following:
            self._seen_tokens = self._tokens

    def on_blur(self, event: events.Blur) -> None:
        self._point(None)

    def action_token(self, step: int) -> None:
        self._move(by_token, step)

    def action_round(self, step: int) -> None:
        self._move(by_round, step)

    def action_reply(self, step: int) -> None:
        self._move(by_reply, step)

    def _move(
        self, by: Callable[[Sequence[Reply], TokenCursor, int], TokenCursor], step: int
    ) -> None:
        at = self._cursor
        is_there = at is not None and at.reply < len(self._replies)
        self._point(by(self._replies, at, step) if at and is_there else last_token(self._replies))

    def _point(self, cursor: TokenCursor | None) -> None:
        self._cursor = cursor
        pointed = None if cursor is None else self._replies[cursor.reply]
        for number, widget in self._messages.items():
            if cursor is None or pointed is None or number != pointed.number:
                widget.point_at(None)
                continue
            row = widget.virtual_region.y + (widget.point_at(cursor.span) or 0)
            self.scroll_to_region(Region(0, row, 1, 1), animate=False)
        facts = facts_of(pointed, cursor.span) if pointed and cursor else None
        self.post_message(self.Pointed(facts))

    def update_footers(self) -> None:
        for footer in self._footers.values():
            footer.update()

    def _anchor_when_full(self, full: bool) -> None:
        # an anchor pins a short conversation to the bottom, and the first scroll makes it jump
        self._left_end = False
        self.anchor(full)

    def _make(self, message: Message) -> list[Widget]:
        widget = TokenMessage(said=not isinstance(message, Reply))
        widget.set_ink(self._ink)
        self._messages[message.number] = widget
        if not isinstance(message, Reply):
            return [widget]
        footer = self._footers[message.number] = ReplyFooter(message)
        return [widget, footer]

    def _extend(self, message: Message) -> None:
        widget = self._messages[message.number]
        widget.extend(message.spans[widget.num_spans :])
        if isinstance(message, Reply):
            widget.set_streaming(not message.is_finished)

    def _drop(self, number: int) -> None:
        self._messages.pop(number).remove()
        if number in self._footers:
            self._footers.pop(number).remove()
