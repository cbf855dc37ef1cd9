"""What writes the next reply, as the user chooses it: the models, the seed, the sampling params."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from mlxspec.drafting.names import check_drafter
from mlxspec.params.setting import Setting
from mlxspec.params.table import STORED
from mlxspec_app.commands import CommandError
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_app.conversation.orders import Load, Regenerate
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import DEFAULTS, Value

Part = Literal["models", "drafters"]

_DEFAULT = "default"
_SEED_BITS = 32
_GREEDY = "temperature 0 writes the same text again; /temp 0.7 gives another answer"


class NextReply:
    """Changes the models and the settings of the session."""

    def __init__(
        self, feed: Feed, screen: ConversationScreen, pick: Callable[[Part], bool]
    ) -> None:
        """`pick` opens the picker, which calls `load`; it returns whether there is a picker."""
        self._feed, self._screen, self._pick = feed, screen, pick

    # ---- models -----------------------------------------------------------------------------

    def choose_model(self, name: str = "") -> None:
        """Load the named model; without a name, open the picker."""
        if name:
            model = "" if name == _DEFAULT else name
            # the present drafter may not fit the new model
            self.load(replace(self._models, model=model, drafter="auto"))
        else:
            self._have_picked("models")

    def choose_drafter(self, name: str = "") -> None:
        """Use the named drafter; without a name, open the picker.

        Raises:
            CommandError: The drafter name is invalid; nothing was loaded.
        """
        if name:
            try:
                check_drafter(name, has_draft_model=False)
            except ValueError as error:
                raise CommandError(str(error)) from error
            self.load(replace(self._models, drafter=name))
        else:
            self._have_picked("drafters")

    def load(self, choice: ModelChoice | None) -> None:
        """Load the chosen models once the running reply has ended; None changes nothing."""
        if choice is None:
            return
        if self._feed.state.phase == "busy":
            self._screen.notify("the models will be loaded after this reply", timeout=3)
        self._feed.send(Load(choice))

    @property
    def _models(self) -> ModelChoice:
        return self._feed.state.choice or ModelChoice()

    def _have_picked(self, part: Part) -> None:
        if not self._pick(part):
            self._screen.notify("name the model: /model NAME, /draft NAME", timeout=3)

    # ---- settings ---------------------------------------------------------------------------

    def regenerate(self, seed: str = "") -> None:
        """Write another reply to the last message; without a model, load the models again.

        `seed` is set first: "same" keeps the present seed, "new" draws one, "" draws one if
        sampling is random.

        Raises:
            CommandError: `seed` is not a valid seed.
        """
        if self._feed.state.phase == "failed":
            self.load(self._models)
            return
        if seed == "new":
            if not self._draw_seed():
                return
        elif not seed:
            self._vary_seed()
        elif seed != "same":
            self._use_seed(seed)
        self._feed.send(Regenerate())

    def adjust(self, name: str, value: str) -> None:
        """Change a setting from the next reply on; an empty value shows the current one.

        Raises:
            CommandError: The value is invalid for this setting.
        """
        if not value:
            now = self._settings.get(name, "not known")
            self._screen.notify(f"{name} is {now}; /settings shows all", timeout=4)
            return
        self._set(name, value)
        self._screen.notify(f"{name} is {value} from the next reply on", timeout=2)

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Pass changed sampling params of the settings on to the session."""
        for name in DEFAULTS:
            key = name.partition(".")[2]
            value = settings.sampling.get(key)
            if value != before.sampling.get(key):
                self._follow(STORED[name], value)

    @property
    def _settings(self) -> dict[str, str]:
        """The settings of the next reply; empty for a recording, which replays unchanged."""
        settings = self._feed.session.settings
        return settings.adjustable() if settings is not None else {}

    def _set(self, name: str, value: str) -> None:
        settings = self._feed.session.settings
        if settings is None:
            raise CommandError(f"{name} cannot be set to {value}: this is a recording")
        try:
            settings.adjust(name, value)
        except ValueError as error:
            raise CommandError(str(error)) from error

    def _follow(self, row: Setting, value: Value | None) -> None:
        with suppress(CommandError):  # a recording has no sampling params to change
            if row.repeats:  # a slash command adds to the list; a setting replaces it
                self._set(row.word, "")
            self._set(row.word, _typed(value))

    def _use_seed(self, seed: str) -> None:
        self._set("seed", seed)
        idle = "; it makes no difference at temperature 0" if self._is_greedy else ""
        self._screen.notify(f"seed {seed}{idle}", timeout=3)

    def _draw_seed(self) -> bool:
        """Set a random new seed; return whether the session accepted it."""
        try:
            self._use_seed(str(random.getrandbits(_SEED_BITS)))
        except CommandError as error:
            self._screen.notify(str(error), severity="warning", timeout=4)
            return False
        return True

    def _vary_seed(self) -> None:
        """Set a new seed; at temperature 0, where the seed has no effect, say so."""
        if not self._settings:
            return
        if self._is_greedy:
            self._screen.notify(_GREEDY, timeout=5)
        else:
            self._draw_seed()

    @property
    def _is_greedy(self) -> bool:
        return float(self._settings.get("temp", "0")) == 0


def _typed(value: Value | None) -> str:
    """Return a value in the syntax of a slash command; "" for None, the default of the chat."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)
