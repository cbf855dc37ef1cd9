"""An app that follows the settings: the one place where they are applied to what is shown."""

import os
from collections.abc import Mapping

from textual import constants

from mlxspec_app.app_choices import FollowsSettings
from mlxspec_app.settings.file import Settings, SettingsError
from mlxspec_app.settings.keys.choices import usable_keys
from mlxspec_app.settings.rules import Value
from mlxspec_app.settings.values import with_value
from mlxspec_app.themed_app import ThemedApp
from mlxspec_app.themes import THEMES
from mlxspec_app.user_data import Desk

THEME_NAMES = tuple(theme.name for theme in THEMES)


class SettingsApp(ThemedApp):
    """Has the theme, the signs, the motion and the keys that the user chose.

    Attributes:
        settings: What the user chose.
        keys: The chosen keys that can be used, by the id of their binding.
        notices: What the user should know about the settings.
        settings_place: Where the settings file lies, or that there is none.
    """

    def __init__(self, theme: str | None = None, desk: Desk | None = None) -> None:
        """Make an app that begins as the settings say.

        Args:
            theme: Name of the theme; without one, TEXTUAL_THEME decides, then the settings.
            desk: Holds the settings; without one they are the usual ones and nothing is written.
        """
        super().__init__()
        self._desk = desk
        self.settings = desk.settings if desk is not None else Settings()
        self.settings_place = str(desk.places.settings) if desk is not None else "kept nowhere"
        keys = usable_keys(self.settings.keys)
        self.keys: Mapping[str, str] = keys.keys
        self.notices = (*(desk.notices if desk is not None else ()), *keys.troubles)
        self.set_keymap(keys.keys)
        asked = (theme, os.environ.get("TEXTUAL_THEME"), self.settings.theme)
        self.theme = next((name for name in asked if name in self.available_themes), THEME_NAMES[0])
        # Textual begins with TEXTUAL_THEME itself, before it knows our themes: no change is seen
        self.mutate_reactive(SettingsApp.theme)
        self._show_signs()

    def change(self, name: str, value: Value | None) -> None:
        """Change a setting, here at once and in its file soon; None gives the default.

        Raises:
            ValueError: There is no such setting, or it cannot have this value.
        """
        self.apply(with_value(self.settings, name, value, THEME_NAMES))
        if name == "theme":  # the one in use may have been asked for on the command line
            self._use_theme()
        if self._desk is not None:
            self._desk.change(name, value, THEME_NAMES)
            self.run_worker(self._write_settings, thread=True, group="settings")

    def apply(self, settings: Settings) -> None:
        """Have the app and its screens follow settings; what did not change stays as it is."""
        before, self.settings = self.settings, settings
        if settings.theme != before.theme:
            self._use_theme()
        if settings.keys != before.keys:
            self.keys = usable_keys(settings.keys).keys
            self.set_keymap(dict(self.keys))
        self._show_signs()
        for screen in self.screen_stack:
            if isinstance(screen, FollowsSettings):
                screen.follow_settings(before, settings)

    def _use_theme(self) -> None:
        self.theme = self.settings.theme or THEME_NAMES[0]

    def _show_signs(self) -> None:
        is_still = self.settings.reduced_motion
        self.animation_level = "none" if is_still else constants.TEXTUAL_ANIMATIONS
        self.ascii_glyphs = self.settings.ascii_glyphs

    def _write_settings(self) -> None:
        assert self._desk is not None
        try:
            self._desk.write_settings()
        except SettingsError as error:
            message = f"{error}; what you changed holds until you quit"
            self.call_from_thread(self.notify, message, severity="warning", timeout=8)
