"""The conversation: a widget per message; earlier ones get theirs when the reader scrolls up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Offset, Region
from textual.message import Message as Notice
from textual.selection import Selection
from textual.widget import Widget

from mlxspec_app.conversation import tokens
from mlxspec_app.conversation.messages import Hit, Message, Reply, Span
from mlxspec_app.conversation.reasoning_fold import ReasoningFold
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.tokens import Step, TokenCursor, TokenFacts, Unit
from mlxspec_app.conversation.views import CALM, INKS, Ink, View
from mlxspec_app.settings.keys.tables import TRANSCRIPT
from mlxspec_app.store.records import Version
from mlxspec_app.text.folds import folded
from mlxspec_app.widgets.chat.message_rows import EarlierRow, ReplyFooter, VersionMark
from mlxspec_app.widgets.chat.painter import GUTTER
from mlxspec_app.widgets.chat.stream import Stream
from mlxspec_app.widgets.chat.token_message import MEASURE, TokenMessage

MOST_SHOWN = 200
_COLUMN = MEASURE + GUTTER + 2  # cells: a message, the free one behind it, and the scrollbar
_MORE = 100  # messages to add at once, and excess over `MOST_SHOWN` before the oldest are dropped


@dataclass
class _Shown:
    """A message on the screen: its text, and below it the footer of a reply and its version."""

    text: TokenMessage
    footer: ReplyFooter | None = None
    mark: VersionMark | None = None
    fold: ReasoningFold = field(default_factory=ReasoningFold)
    is_open: bool = False  # whether long parts of a message of the user are shown

    @property
    def widgets(self) -> list[Widget]:
        return [each for each in (self.text, self.footer, self.mark) if each is not None]

    def extend(self, reply: Reply) -> None:
        """Append new text of a reply; finished reasoning is folded."""
        self.text.cut_to(0 if self.fold.update(reply) else len(reply.spans))
        self.text.extend(self.fold.shown[self.text.num_spans :])

    def show(self, message: Message) -> None:
        """Show a message that is no reply; its long parts are folded unless it is open."""
        text = message.text if self.is_open else folded(message.text)
        self.text.cut_to(0)
        self.text.extend([Span(text)] if text else [])


class Transcript(Stream, can_focus=False):
    """Shows the messages, oldest first; where it can have the focus, a cursor moves over them."""

    FOCUS_ON_CLICK = False  # typed text still reaches the prompt
    BINDINGS: ClassVar[list[BindingType]] = list(TRANSCRIPT)

    @dataclass
    class Pointed(Notice):
        """The cursor has moved; all fields are empty if it is off, or not on a reply."""

        facts: TokenFacts | None = None
        reply: Reply | None = None
        round: Round | None = None
        is_clicked: bool = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._messages: list[Message] = []
        self._first = 0
        self._settled = 0
        self._settled_tokens = 0
        self._footed = 0
        self._shown: dict[int, _Shown] = {}  # by message number
        self._versions: Mapping[int, Version] = {}
        self._cursor: TokenCursor | None = None
        self._ink, self._view = INKS[0], CALM
        self._seen_tokens = 0
        self._tokens = 0

    def compose(self) -> ComposeResult:
        yield EarlierRow()

    def on_resize(self) -> None:
        """Centre the column of text: its layout takes neither a width nor an alignment."""
        self.styles.padding = (0, max(1, (self.outer_size.width - _COLUMN) // 2))

    @property
    def unseen(self) -> int:
        """Tokens that arrived since the reader scrolled away; 0 while the end is in view."""
        return 0 if self.is_following else self._tokens - self._seen_tokens

    @property
    def pointed_message(self) -> Message | None:
        return self._messages[self._cursor.message] if self._cursor is not None else None

    @property
    def pointed_character(self) -> int:
        """Character index of the token under the cursor in its message; 0 without a cursor."""
        message = self.pointed_message
        if message is None or self._cursor is None:
            return 0
        return sum(len(span.text) for span in message.spans[: self._cursor.span])

    def set_view(self, view: View, ink: Ink) -> None:
        """Show all messages in a view; the text that is being read stays in view."""
        if view is not self._view and not self.is_following and (first := self.first_in_view()):
            self.hold(first)
        self._view, self._ink = view, ink
        for shown in self._shown.values():
            shown.text.set_ink(ink)
            shown.text.set_view(view)
            if shown.footer is not None:
                shown.footer.set_view(view)

    def sync(self, messages: Sequence[Message]) -> None:
        """Show these messages: drop widgets of others, add missing ones, append new text.

        Finished messages are skipped unless the start of the list has changed: they cost nothing.
        """
        if list(messages[: self._settled]) != self._messages[: self._settled]:
            self._settled = self._settled_tokens = self._footed = 0
        start, before = self._settled, self._messages[self._settled :]
        if not self._is_pointed_in(messages):
            self._point(None)
        self._messages = list(messages)
        numbers = {message.number for message in messages[start:]}
        for message in before:
            if message.number not in numbers:
                self._drop(message)
        self._lay_out(self._first if start else max(0, len(messages) - MOST_SHOWN), start)
        for message in messages[max(start, self._first) :]:
            self._update(message)
        self._settle()
        if self.is_following:
            self._seen_tokens = self._tokens
            self._forget_oldest()

    def load_earlier(self) -> None:
        """Add widgets for messages before the first one, which stays in its row."""
        if self._first:
            number = self._messages[self._first].number
            self.hold(self._shown[number].text)
            self._lay_out(max(0, self._first - _MORE))

    def toggle_rendered(self, reply: Reply) -> None:
        """Switch a reply between rendered Markdown and its exact text, until the view changes."""
        shown = self._shown.get(reply.number)
        if shown is not None:
            if not self.is_following:
                self.hold(shown.text)
            shown.text.turn()

    def toggle_reasoning(self, reply: Reply) -> bool:
        """Unfold the reasoning of a reply, or fold it; return whether it has any."""
        shown = self._shown.get(reply.number)
        if shown is None or not shown.fold.has_fold:
            return False
        self.hold(shown.text)
        shown.fold.toggle()
        shown.extend(reply)
        return True

    def toggle_parts(self, message: Message | None) -> bool:
        """Unfold the long parts of a message of the user, or fold them; return if it has any."""
        shown = self._shown.get(message.number) if message is not None else None
        if message is None or shown is None or folded(message.text) == message.text:
            return False
        self.hold(shown.text)
        shown.is_open = not shown.is_open
        shown.show(message)
        return True

    def update_footers(self) -> None:
        """Update the footers that can still change; a proof arrives after the end of a reply."""
        for message in self._messages[max(self._first, self._footed) :]:
            shown = self._shown.get(message.number)
            if shown is not None and shown.footer is not None:
                shown.footer.update()
        self._footed = max(0, self._settled - 2)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value <= 0 < old_value and not self.is_following:
            self.load_earlier()

    def show_message(self, message: Message) -> None:
        """Scroll to the first row of a message and stay there."""
        if message in self._messages:
            self.release_anchor()
            self._lay_out(min(self._first, self._messages.index(message)))
            self.call_after_refresh(self._reveal, message.number, 0, self.size.height)

    def show_hit(self, hit: Hit) -> None:
        if hit.message not in self._messages:
            return
        self.release_anchor()
        self._lay_out(min(self._first, self._messages.index(hit.message)))
        shown = self._shown[hit.message.number]
        widget = shown.text
        if not (shown.is_open or isinstance(hit.message, Reply)):  # the words may be folded
            self.toggle_parts(hit.message)
        start, end = Offset(hit.start, hit.line), Offset(hit.end, hit.line)
        self.screen.selections = {widget: Selection(start, end)}
        self.call_after_refresh(self._reveal, hit.message.number, widget.row_at(*hit[1:3]))

    def show_start(self) -> None:
        for message in self._messages[:1]:
            self.show_message(message)

    def show_versions(self, versions: Mapping[int, Version]) -> None:
        """Mark the messages that have several versions, given by message number."""
        self._versions = versions
        for number, shown in self._shown.items():
            version = versions.get(number)
            if shown.mark is not None and version is not None:
                shown.mark.show(version)
            elif shown.mark is not None:
                shown.mark.remove()
                shown.mark = None
            elif version is not None:
                shown.mark = VersionMark(number, version)
                self.mount(shown.mark, after=shown.footer or shown.text)

    def on_blur(self, event: events.Blur) -> None:
        self._point(None)

    def action_point(self, unit: Unit, step: Step) -> None:
        """Move the cursor to the next or the previous unit, at first to the newest token."""
        at, messages = self._cursor, self._messages
        self._point(tokens.moved(messages, at, unit, step) if at else tokens.last_token(messages))

    def on_click(self, event: events.Click) -> None:
        for message in self._messages[self._first :]:
            shown = self._shown.get(message.number)
            if shown is not None and shown.text is event.widget and shown.text.is_user:
                self.toggle_parts(message)

    @on(TokenMessage.TokenClicked)
    def _point_at_clicked(self, event: TokenMessage.TokenClicked) -> None:
        for index, message in enumerate(self._messages):
            shown = self._shown.get(message.number)
            if shown is not None and shown.text is event.message:
                self.focus()
                self._point(TokenCursor(index, event.span), is_clicked=True)

    @on(EarlierRow.Requested)
    def _load(self) -> None:
        self.load_earlier()

    def _point(self, cursor: TokenCursor | None, *, is_clicked: bool = False) -> None:
        before, self._cursor = self.pointed_message, cursor
        message = self.pointed_message
        if before is not None and before is not message and before.number in self._shown:
            self._shown[before.number].text.point_at(None)
        if message is None or cursor is None:
            self.post_message(self.Pointed())
            return
        while cursor.message < self._first:
            self.load_earlier()
        row = self._shown[message.number].text.point_at(cursor.span)
        self.call_after_refresh(self._reveal, message.number, row)
        pointed = self.Pointed()
        if isinstance(message, Reply):
            facts = tokens.facts_of(message, cursor.span)
            round_ = tokens.round_of(message, cursor.span)
            pointed = self.Pointed(facts, message, round_, is_clicked)
        self.post_message(pointed)

    def _is_pointed_in(self, messages: Sequence[Message]) -> bool:
        """Return whether a list still has the token under the cursor, if any, at its index."""
        at, message = self._cursor, self.pointed_message
        if at is None or message is None:
            return True
        same = messages[at.message : at.message + 1]
        return any(m.number == message.number and at.span < len(m.spans) for m in same)

    def _reveal(self, number: int, row: int, height: int = 1) -> None:
        shown = self._shown.get(number)
        region = self.region_of(shown.text) if shown is not None else None
        if region is not None:
            self.scroll_to_region(Region(0, region.y + row, 1, height), animate=False)

    def _lay_out(self, first: int, start: int = 0) -> None:
        """Make a widget for each message from index `first` on, and remove those before it.

        No widget is missing before index `start`, unless `first` changes.
        """
        if first != self._first:
            start = 0
            self.query_one(EarlierRow).show(first)
            for message in self._messages[self._first : first]:
                self._drop(message)
        self._first = first
        fresh: list[Widget] = []
        for message in self._messages[max(first, start) :]:
            shown = self._shown.get(message.number)
            if shown is None:
                fresh += self._make(message)
            elif fresh:
                self.mount(*fresh, before=shown.text)
                fresh = []
        if fresh:
            self.mount(*fresh)

    def _settle(self) -> None:
        """Count the leading messages that can no longer change, and all tokens."""
        for message in self._messages[self._settled :]:
            if isinstance(message, Reply) and not message.is_finished:
                break
            self._settled += 1
            self._settled_tokens += len(message.spans)
        rest = self._messages[self._settled :]
        self._tokens = self._settled_tokens + sum(len(message.spans) for message in rest)

    def _forget_oldest(self) -> None:
        # Not with a cursor: its message could lose its widget.
        if len(self._messages) - self._first > MOST_SHOWN + _MORE and self._cursor is None:
            self._lay_out(len(self._messages) - MOST_SHOWN)

    def _make(self, message: Message) -> list[Widget]:
        is_reply = isinstance(message, Reply)
        shown = _Shown(TokenMessage(is_user=not is_reply, view=self._view))
        self._shown[message.number] = shown
        if message.role == "system":
            shown.text.add_class("-system")
            shown.text.border_title = "system prompt"
        shown.text.set_ink(self._ink)
        if isinstance(message, Reply):
            shown.footer = ReplyFooter(message, self._view)
            self._update(message)
        else:
            shown.show(message)
        if version := self._versions.get(message.number):
            shown.mark = VersionMark(message.number, version)
        return shown.widgets

    def _update(self, message: Message) -> None:
        shown = self._shown[message.number]
        if isinstance(message, Reply) and shown.footer is not None:
            shown.extend(message)
            shown.footer.reply = message
            shown.text.set_streaming(not message.is_finished)

    def _drop(self, message: Message) -> None:
        shown = self._shown.pop(message.number, None)
        for widget in shown.widgets if shown is not None else []:
            widget.remove()
