"""The Textual app: it applies the settings to themes, signs, motion and keys, while it runs.

The colours are those of `theme`. Signs are drawn in ASCII while `ascii_glyphs` is set, and nothing
moves or blinks while `animation_level` is "none". `run` puts a screen into the app and runs it.
"""

import os
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from textual import constants, events, on
from textual.app import App
from textual.drivers import linux_driver, linux_inline_driver
from textual.filter import LineFilter, Monochrome, NoColor
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Input, TextArea

from mlxspec_app.settings.file import Settings, SettingsError, with_value
from mlxspec_app.settings.keys.choices import usable_keys
from mlxspec_app.settings.rules import Value
from mlxspec_app.text.glyphs import AsciiFilter, terminal_takes_unicode
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.themes import THEMES, fallback_colours, theme_for
from mlxspec_app.user_data import UserData

THEME_NAMES = tuple(theme.name for theme in THEMES)
FEW_ROWS = 10
"""With fewer rows, a terminal shows only the transcript and the prompt."""
_NO_COLOUR = NoColor()


def mend_typed_bytes() -> None:
    """Decode typed bytes that are not UTF-8 as U+FFFD: Textual's own decoder ends the app."""
    for driver in (linux_driver, linux_inline_driver):
        vars(driver).update(getincrementaldecoder=_typed_decoder)


def _typed_decoder(encoding: str) -> Callable[[], IncrementalDecoder]:
    return partial(getincrementaldecoder(encoding), errors="replace")


class MlxspecApp(App[None]):
    """A Textual app around one screen, with the settings of the user."""

    TITLE = "mlxspec"
    CSS_PATH = ["app.tcss", "screens.tcss"]  # noqa: RUF012
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide"), (140, "-xwide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (FEW_ROWS, "-short"), (26, "-tall")]  # noqa: RUF012

    ascii_glyphs = reactive(False)

    def __init__(
        self,
        make_screen: Callable[[], Screen[None]],
        theme: str | None = None,
        user_data: UserData | None = None,
    ) -> None:
        """`theme` None uses TEXTUAL_THEME, then the settings. No `user_data` writes no file."""
        super().__init__()
        mend_typed_bytes()
        self._make_screen = make_screen
        for each in THEMES:
            self.register_theme(each)
        self._ascii = AsciiFilter()
        self._takes_unicode = terminal_takes_unicode()
        self._user_data = user_data
        self.settings, self.settings_path = Settings(), "kept nowhere"
        self.notices: tuple[str, ...] = ()  # the problems of the settings, a sentence each
        if user_data is not None:
            self.settings, self.notices = user_data.settings, user_data.notices
            self.settings_path = str(user_data.paths.settings)
        keys = usable_keys(self.settings.keys)
        self.keys: Mapping[str, str] = keys.keys  # by the id of their binding
        self.notices += keys.troubles
        self.set_keymap(keys.keys)
        colours = self.console.color_system
        self._usual_theme = theme_for(os.environ, colours)
        asked = (theme, os.environ.get("TEXTUAL_THEME"))
        self.theme = next(
            (name for name in asked if name in self.available_themes),
            theme_for(os.environ, colours, self.settings.theme),
        )
        # Textual set TEXTUAL_THEME before our themes were registered, so it sees no change
        self.mutate_reactive(MlxspecApp.theme)
        self._show_signs()

    def get_default_screen(self) -> Screen[Any]:
        return self._make_screen()

    # ---- settings ---------------------------------------------------------------------------

    def change(self, name: str, value: Value | None) -> None:
        """Change a setting here at once, and in the file soon; None sets its default."""
        self.apply(with_value(self.settings, name, value))
        if name == "theme":  # even if equal: the theme in use may come from the command line
            self._use_theme()
        if self._user_data is not None:
            self._user_data.change(name, value)
            self.run_worker(self._write_settings, thread=True, group="settings")

    def change_theme(self, name: str = "") -> None:
        """Change to the named theme, else to the next one."""
        index = THEME_NAMES.index(self.theme) if self.theme in THEME_NAMES else -1
        self.change("theme", name or THEME_NAMES[(index + 1) % len(THEME_NAMES)])

    def apply(self, settings: Settings) -> None:
        """Apply settings to the app and its screens; only changed ones have an effect."""
        before, self.settings = self.settings, settings
        if settings.theme != before.theme:
            self._use_theme()
        if settings.keys != before.keys:
            self.keys = usable_keys(settings.keys).keys
            self.set_keymap(dict(self.keys))
        self._show_signs()
        for screen in self.screen_stack:
            if hasattr(screen, "follow_settings"):
                screen.follow_settings(before, settings)

    def _use_theme(self) -> None:
        self.theme = self.settings.theme or self._usual_theme

    def _show_signs(self) -> None:
        is_still = self.settings.reduced_motion
        self.animation_level = "none" if is_still else constants.TEXTUAL_ANIMATIONS
        self.ascii_glyphs = self.settings.ascii_glyphs

    def _write_settings(self) -> None:
        assert self._user_data is not None
        try:
            self._user_data.write_settings()
        except SettingsError as error:
            message = f"{error}; your changes last until you quit"
            self.call_from_thread(self.notify, message, severity="warning", timeout=8)

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda app: self._draw_again())

    def _draw_again(self) -> None:
        """Redraw every row, because another program used the terminal meanwhile."""
        for widget in self.screen.walk_children(with_self=True):
            widget.refresh()

    def action_suspend_process(self) -> None:
        """Stop the process as a shell's Ctrl+Z does, or say why that is impossible."""
        if self._driver is None or not self._driver.can_suspend:
            self.notify("the app cannot be suspended here", timeout=3)
        elif os.getpgrp() == os.getsid(0):
            self.notify("no shell started this app, so none could resume it", timeout=4)
        else:
            super().action_suspend_process()

    # ---- looks ------------------------------------------------------------------------------

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return fallback_colours(dark=self.current_theme.dark)

    @property
    def draws_ascii(self) -> bool:
        """Whether signs are drawn in ASCII, by the settings or for the terminal."""
        return self.ascii_glyphs or not self._takes_unicode

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = list(super().get_line_filters())
        if self.no_color and self.native_ansi_color:
            # Monochrome needs RGB values, and native colours have none
            filters = [_NO_COLOUR if isinstance(item, Monochrome) else item for item in filters]
        return [*filters, self._ascii] if self.draws_ascii else filters

    def notify(self, message: str, *, title: str = "", **options: Any) -> None:
        """Show a notice as plain text, never as markup: it often quotes the user."""
        options["markup"] = False
        super().notify(safe_text(message), title=safe_line(title), **options)

    def watch_ascii_glyphs(self) -> None:
        self.set_class(self.draws_ascii, "-ascii")
        for screen in self.screen_stack:
            for widget in screen.walk_children(with_self=True):
                widget.notify_style_update()  # clears the cached rows of the widget
                widget.refresh()

    @on(events.DescendantFocus)
    def _steady_cursor(self, event: events.DescendantFocus) -> None:
        """Stop the cursor from blinking if nothing may move."""
        if isinstance(event.widget, Input | TextArea):
            event.widget.cursor_blink = self.animation_level != "none"
