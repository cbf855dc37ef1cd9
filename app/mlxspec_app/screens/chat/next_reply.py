"""What writes the next reply, as the user chooses it: the models, the seed, the sampling params."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from mlxspec.drafting.names import check_drafter
from mlxspec.params.table import STORED
from mlxspec_app.commands import CommandError
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_app.conversation.orders import Load, Regenerate
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import DEFAULTS
from mlxspec_app.user_data import UserData

_DEFAULT = "default"
_SEED_BITS = 32
_GREEDY = "temperature 0 writes the same text again; /temp 0.7 gives another answer"


class NextReply:
    """Changes the models and the settings of the session."""

    def __init__(
        self, feed: Feed, screen: ConversationScreen, user_data: UserData | None = None
    ) -> None:
        """Without a catalogue in `user_data`, models have to be named."""
        self._feed, self._screen, self._user_data = feed, screen, user_data

    # ---- models -----------------------------------------------------------------------------

    def choose_model(self, name: str = "") -> None:
        """Load the named model; without a name, open the picker."""
        if name:
            model = "" if name == _DEFAULT else name
            # the present drafter may not fit the new model
            self.load(replace(self._models, model=model, drafter="auto"))
        else:
            self._open_picker("models")

    def choose_drafter(self, name: str = "") -> None:
        """Use the named drafter; without a name, open the picker."""
        if not name:
            self._open_picker("drafters")
            return
        try:
            check_drafter(name, has_draft_model=False)
        except ValueError as error:
            raise CommandError(str(error)) from error
        self.load(replace(self._models, drafter=name))

    def load(self, choice: ModelChoice | None) -> None:
        """Load the chosen models once the running reply has ended; None changes nothing."""
        if choice is None:
            return
        if self._feed.state.phase == "busy":
            self._screen.notify("the models will be loaded after this reply", timeout=3)
        self._feed.send(Load(choice))

    def find_models(self, then: Callable[[Sequence[str]], None]) -> None:
        """List the names for `/model` in a thread, because that reads disks; `then` gets them."""
        catalogue = self._user_data.catalogue if self._user_data is not None else None
        if catalogue is None:
            return

        async def find() -> None:
            with suppress(Exception):  # the model picker reports disk errors
                models = await asyncio.to_thread(catalogue.models)
                then([entry.source or _DEFAULT for entry in models if not entry.problem])

        self._screen.run_beside(find, group="names")

    def _open_picker(self, begins_with: str) -> None:
        """Open the list of models and drafters; the list `begins_with` has the focus first."""
        user_data, state = self._user_data, self._feed.state
        if user_data is None or user_data.catalogue is None:
            self._screen.notify("name the model: /model NAME, /draft NAME", timeout=3)
            return
        from mlxspec_app.screens.models import ModelsScreen  # late: it delays the first frame

        send = self._feed.send
        picker = ModelsScreen(user_data, user_data.catalogue, state, send, begins_with=begins_with)
        self._screen.app.push_screen(picker, self.load)

    @property
    def _models(self) -> ModelChoice:
        return self._feed.state.choice or ModelChoice()

    # ---- settings ---------------------------------------------------------------------------

    def regenerate(self, seed: str = "") -> None:
        """Write another reply to the last message; without a model, load the models again.

        `seed` is set first: "same" keeps the present seed, "new" draws one, "" draws one if
        sampling is random.
        """
        if self._feed.state.phase == "failed":
            self.load(self._models)
            return
        is_recording = self._feed.session.settings is None  # it replays unchanged
        if not seed and self._is_greedy and not is_recording:
            self._screen.notify(_GREEDY, timeout=5)
        elif seed == "new" or not (seed or is_recording):
            self._use_seed(str(random.getrandbits(_SEED_BITS)))
        elif seed not in ("", "same"):
            self._use_seed(seed)
        self._feed.send(Regenerate())

    def adjust(self, name: str, value: str) -> None:
        """Change a setting from the next reply on; an empty value shows the current one."""
        if not value:
            now = self._settings.get(name, "not known")
            self._screen.notify(f"{name} is {now}; /settings shows all", timeout=4)
            return
        self._set(name, value)
        self._screen.notify(f"{name} is {value} from the next reply on", timeout=2)

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Pass changed sampling params of the settings on to the session."""
        for name in DEFAULTS:
            row, key = STORED[name], name.partition(".")[2]
            value = settings.sampling.get(key)
            if value == before.sampling.get(key):
                continue
            typed = "" if value is None else str(value)
            if isinstance(value, bool):
                typed = "on" if value else "off"
            with suppress(CommandError):  # a recording has no sampling params to change
                if row.repeats:  # a slash command adds to the list; a setting replaces it
                    self._set(row.word, "")
                self._set(row.word, typed)

    @property
    def _settings(self) -> dict[str, str]:
        """The settings of the next reply; empty for a recording."""
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

    def _use_seed(self, seed: str) -> None:
        self._set("seed", seed)
        idle = "; it makes no difference at temperature 0" if self._is_greedy else ""
        self._screen.notify(f"seed {seed}{idle}", timeout=3)

    @property
    def _is_greedy(self) -> bool:
        return float(self._settings.get("temp", "0")) == 0
