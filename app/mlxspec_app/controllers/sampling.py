"""The sampling params of the next replies, from the settings file or from a slash command."""

import random
from contextlib import suppress

from mlxspec.params.table import STORED
from mlxspec_app.commands import CommandError
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import DEFAULTS
from mlxspec_app.settings.values import value_of

_SEED_BITS = 32


class SamplingSwitch:
    """Changes the sampling params of the session."""

    def __init__(self, feed: Feed, page: ChatPage) -> None:
        """Make a controller that has changed nothing yet."""
        self._feed, self._page = feed, page

    def adjust(self, name: str, value: str) -> None:
        """Change a setting from the next reply on; an empty value shows the current one.

        Raises:
            CommandError: The setting cannot have this value.
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
            CommandError: It cannot be a seed, or the session has none.
        """
        self._adjust("seed", seed)
        self._page.notify(f"seed {seed}; it makes no difference at temperature 0", timeout=3)

    def draw_seed(self) -> bool:
        """Set another seed at random; return whether the session accepted it."""
        try:
            self.use_seed(str(random.getrandbits(_SEED_BITS)))
        except CommandError as error:
            self._page.notify(str(error), severity="warning", timeout=4)
            return False
        return True

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Give the session the sampling params that changed in the settings."""
        for name in DEFAULTS:
            value = value_of(settings, name)
            if value != value_of(before, name):
                with suppress(ValueError):  # a recording has no sampling params to change
                    self._feed.session.adjust(STORED[name].word, str(value))

    def _adjust(self, name: str, value: str) -> None:
        try:
            self._feed.session.adjust(name, value)
        except ValueError as error:
            raise CommandError(str(error)) from error
