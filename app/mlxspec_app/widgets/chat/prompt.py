"""The prompt: a text area that grows with its text, sends on Enter and has a history."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.filter import LineFilter
from textual.message import Message
from textual.widgets import TextArea

from mlxspec_app.text.folds import Folds
from mlxspec_app.text.glyphs import without_ascii
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.command_hints import CommandHints

_NEW_LINE_KEYS = ("ctrl+j", "shift+enter", "alt+enter")
_PLACEHOLDER = "Message …   Enter sends · Ctrl+J new line · / or Ctrl+P commands · F1 help"
_MENU_STEPS = {"up": -1, "down": 1}


class Prompt(TextArea):
    """The text area in which the user types; it posts `Submitted`."""

    @dataclass
    class Submitted(Message):
        """The user sent a message; "" for Enter alone, which answers a question."""

        text: str

    def __init__(self, menu: CommandHints) -> None:
        super().__init__(
            show_line_numbers=False,
            highlight_cursor_line=False,
            tab_behavior="focus",
            placeholder=_PLACEHOLDER,
        )
        self._menu = menu
        self._folds = Folds()
        self._sent: list[str] = []
        self._recalled = 0

    def on_key(self, event: events.Key) -> None:
        self._show_menu()  # a key can arrive before the `Changed` message of the text
        if event.key == "enter":
            self._enter()
        elif event.key == "tab":
            self._complete()
        elif event.key in _NEW_LINE_KEYS:
            self.insert("\n")
        elif event.key in _MENU_STEPS and self._menu.is_open:
            self._menu.move(_MENU_STEPS[event.key])
        elif event.key == "escape" and self._menu.is_open:
            self._menu.close()
        elif event.key == "ctrl+d" and not self.text:
            self.app.exit()
        elif event.key == "ctrl+underscore":  # not Ctrl+Z, which suspends the app
            self.undo()
        elif (
            event.key == "up"
            and self.cursor_location[0] == 0
            and (not self.text or self._is_recalled)
        ):
            self._recall(1)
        elif event.key == "down" and self.cursor_at_last_line and self._recalled:
            self._recall(-1)
        else:
            return
        event.stop()
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        folded = self._folds.fold(event.text)
        if "\n" in event.text and "\n" not in folded:
            event.stop()
            event.prevent_default()
            self.replace(folded, *self.selection)

    def remember(self, texts: Sequence[str]) -> None:
        self._sent[:0] = texts

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return without_ascii(filters) if self.text else filters  # the placeholder has our own signs

    def fill(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def restore(self, text: str) -> None:
        """Put an unsent text back, before the text typed since then."""
        self.fill("\n".join(part for part in (self._folds.fold(text), self.text) if part))

    def set_aside(self) -> None:
        """Clear the field; the history keeps its text."""
        self._remember_typed()
        self.clear()

    @property
    def unsent(self) -> str:
        """The text as it would be sent, with long pastes in full."""
        return self._folds.unfold(self.text)

    def show_purpose(self, purpose: str) -> None:
        """Show above the field what the text is for; "" for a message."""
        self.border_title = purpose or None

    def show_chat(self, title: str) -> None:
        self.border_subtitle = Content(safe_line(title))

    def on_text_area_changed(self) -> None:
        self._show_menu()

    def _show_menu(self) -> None:
        # The arrows step through the history while a recalled text is unchanged.
        self._menu.show("" if self._is_recalled else self.text)

    def _complete(self) -> None:
        best = self._menu.best
        if best is not None:
            self.fill(best.line)
        else:
            self.screen.focus_next()

    def _enter(self) -> None:
        marked = self._menu.marked
        if marked is not None:
            self.fill(marked.line)
        if marked is None or marked.is_whole:
            self._submit()

    def _submit(self) -> None:
        text = self._remember_typed()
        if text:
            self.clear()
        self.post_message(self.Submitted(text))

    def _remember_typed(self) -> str:
        """Add the text to the history and return it; "" if there is none."""
        text = self.unsent.strip()
        if text:
            self._sent.append(text)
            self._recalled = 0
        return text

    @property
    def _is_recalled(self) -> bool:
        return self._recalled > 0 and self.text == self._recalled_text

    @property
    def _recalled_text(self) -> str:
        return self._folds.fold(self._sent[-self._recalled])

    def _recall(self, step: int) -> None:
        self._recalled = min(len(self._sent), max(0, self._recalled + step))
        self.text = self._recalled_text if self._recalled else ""
        self.move_cursor(self.document.end)
