"""An app in our themes: what colours, signs and motion it has, which can change while it runs.

The colours are those of `theme`. Signs are drawn in ASCII while `ascii_glyphs` is set, and
nothing moves or blinks while `animation_level` is "none".
"""

from collections.abc import Sequence

from textual import events, on
from textual.app import App
from textual.filter import LineFilter, Monochrome, NoColor
from textual.notifications import SeverityLevel
from textual.reactive import reactive
from textual.widgets import Input, TextArea

from mlxspec_app.text.ascii_filter import AsciiFilter
from mlxspec_app.text.glyphs import terminal_takes_unicode
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.themes import THEMES, fallback_colours

_NO_COLOUR = NoColor()


class ThemedApp(App[None]):
    """An app that knows our themes.

    Attributes:
        ascii_glyphs: Whether every sign around the text is drawn in ASCII; where the terminal's
            encoding is not Unicode it is done unasked.
    """

    ascii_glyphs = reactive(False)

    def __init__(self) -> None:
        """Make an app in the theme that Textual has chosen."""
        super().__init__()
        for known in THEMES:
            self.register_theme(known)
        self._ascii = AsciiFilter()
        self._takes_unicode = terminal_takes_unicode()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return fallback_colours(dark=self.current_theme.dark)

    @property
    def draws_ascii(self) -> bool:
        """Whether signs are drawn in ASCII, asked or unasked."""
        return self.ascii_glyphs or not self._takes_unicode

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = list(super().get_line_filters())
        if self.no_color and self.native_ansi_color:
            # greys cannot be made of colours that only the terminal knows
            filters = [_NO_COLOUR if isinstance(item, Monochrome) else item for item in filters]
        return [*filters, self._ascii] if self.draws_ascii else filters

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Say something for a while, as plain text whatever it holds: it often quotes the user.

        Args:
            message: What to say.
            title: What it is about.
            severity: How bad it is.
            timeout: For how many seconds; None for the usual ones.
            markup: Not looked at; a bracket is a bracket.
        """
        text, about = safe_text(message), safe_line(title)
        super().notify(text, title=about, severity=severity, timeout=timeout, markup=False)

    def watch_ascii_glyphs(self) -> None:
        self.set_class(self.draws_ascii, "-ascii")
        for screen in self.screen_stack:
            for widget in screen.walk_children(with_self=True):
                widget.notify_style_update()  # forget what was drawn
                widget.refresh()

    @on(events.DescendantFocus)
    def _steady_cursor(self, event: events.DescendantFocus) -> None:
        """Let no cursor blink where nothing may move."""
        if isinstance(event.widget, Input | TextArea):
            event.widget.cursor_blink = self.animation_level != "none"
