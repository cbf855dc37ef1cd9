"""The sampling params of the next replies, set by the settings file or a slash command."""

import random
from contextlib import suppress

from mlxspec.params.setting import Setting
from mlxspec.params.table import STORED
from mlxspec_app.commands import CommandError
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import DEFAULTS, Value

_SEED_BITS = 32
_GREEDY = "temperature 0 writes the same text again; /temp 0.7 gives another answer"


class SamplingSwitch:
    """Changes the sampling params of the session."""

    def __init__(self, feed: Feed, page: ChatPage) -> None:
        self._feed, self._page = feed, page

    def adjust(self, name: str, value: str) -> None:
        """Change a setting from the next reply on; an empty value shows the current one.

        Raises:
            CommandError: The value is invalid for this setting.
        """
        if not value:
            now = self._feed.session.adjustable().get(name, "not known")
            self._page.notify(f"{name} is {now}; /settings shows all", timeout=4)
            return
        self._adjust(name, value)
        self._page.notify(f"{name} is {value} from the next reply on", timeout=2)

    def use_seed(self, seed: str) -> None:
        """Set the seed of the next replies.

        Raises:
            CommandError: The seed is invalid, or the session has none.
        """
        self._adjust("seed", seed)
        temperature = self._feed.session.adjustable().get("temp", "0")
        idle = "; it makes no difference at temperature 0" if float(temperature) == 0 else ""
        self._page.notify(f"seed {seed}{idle}", timeout=3)

    def draw_seed(self) -> bool:
        """Set a random new seed; return whether the session accepted it."""
        try:
            self.use_seed(str(random.getrandbits(_SEED_BITS)))
        except CommandError as error:
            self._page.notify(str(error), severity="warning", timeout=4)
            return False
        return True

    def vary(self) -> None:
        """Set a new seed; at temperature 0, where the seed has no effect, say so."""
        temperature = self._feed.session.adjustable().get("temp")
        if temperature is None:
            return  # a recording replays unchanged
        if float(temperature) == 0:
            self._page.notify(_GREEDY, timeout=5)
        else:
            self.draw_seed()

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Pass changed sampling params of the settings on to the session."""
        for name in DEFAULTS:
            key = name.partition(".")[2]
            value = settings.sampling.get(key)
            if value != before.sampling.get(key):
                self._follow(STORED[name], value)

    def _follow(self, row: Setting, value: Value | None) -> None:
        with suppress(ValueError):  # a recording has no sampling params to change
            if row.repeats:  # a slash command adds to the list; a setting replaces it
                self._feed.session.adjust(row.word, "")
            self._feed.session.adjust(row.word, _typed(value))

    def _adjust(self, name: str, value: str) -> None:
        try:
            self._feed.session.adjust(name, value)
        except ValueError as error:
            raise CommandError(str(error)) from error


def _typed(value: Value | None) -> str:
    """Return a value in the syntax of a slash command; "" for None, the default of the chat."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)
