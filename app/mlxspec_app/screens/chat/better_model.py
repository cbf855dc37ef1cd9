"""A better model than the embedded one: offered in an empty chat, and fetched behind the chat.

Nothing is fetched unasked, and the chat goes on with the model only where the user says so.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from textual.content import Content
from textual.widgets import Static

from mlxspec.drafting.entries import ModelEntry
from mlxspec.params import DEFAULT_MODEL
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_app.picker.catalogue import Catalogue, Fetching, gigabytes
from mlxspec_app.picker.model_rows import fetch_news
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.user_data import UserData

KEY = "f"
_FORM = re.compile(r"(-(Instruct|MLX|[0-9]+bit|it))+$")  # the end of a repository's name
_MUTED = "$spec-muted"


class BetterModel:
    """The model that fits this machine, its download, and the question at the end of it."""

    def __init__(
        self,
        feed: Feed,
        screen: ConversationScreen,
        user_data: UserData | None,
        load: Callable[[ModelChoice], None],
    ) -> None:
        """`load` loads models in the session; nothing is offered without a catalogue."""
        self._feed, self._screen, self._user_data, self._load = feed, screen, user_data, load
        self._model: ModelEntry | None = None
        self._answered: Fetching | None = None  # the last download whose end was answered
        self._is_sought = False

    @property
    def can_fetch(self) -> bool:
        return self._catalogue is not None

    @property
    def _catalogue(self) -> Catalogue | None:
        return self._user_data.catalogue if self._user_data is not None else None

    @property
    def is_open(self) -> bool:
        """Whether a download runs, or its end waits for an answer."""
        return self._fetching is not None

    @property
    def _fetching(self) -> Fetching | None:
        """The last download, until the user has answered its end or loaded the model."""
        fetching = self._user_data.fetching if self._user_data is not None else None
        if fetching is None or fetching is self._answered:
            return None
        choice = self._feed.state.choice
        is_loaded = choice is not None and choice.model == fetching.model.source
        return None if is_loaded else fetching

    @property
    def _offered(self) -> ModelEntry | None:
        """The model that is offered: in an empty chat with the embedded one."""
        state = self._feed.state
        is_toy = state.is_empty and state.phase == "ready" and state.target == DEFAULT_MODEL
        return self._model if is_toy and not self.is_open else None

    def seek(self) -> None:
        """Look once, in a thread, which model fits this machine."""
        catalogue = self._catalogue
        if self._is_sought or catalogue is None:
            return
        self._is_sought = True

        async def look() -> None:
            with suppress(Exception):  # the model picker reports disk errors
                self._model = await asyncio.to_thread(catalogue.recommended)

        self._screen.run_beside(look, group="recommended")

    def show(self) -> None:
        """Show the offer, the progress or the question above the prompt."""
        line, row = self._line(), self._screen.query_one("#better-model", Static)
        if row.display != bool(line):
            row.display = bool(line)
            self._screen.refresh_bindings()
        if line != row.content:
            row.update(line)

    def _line(self) -> Content:
        fetching, offered = self._fetching, self._offered
        if fetching is not None:
            end = "leaves it" if fetching.error else "stays"
            way = end if fetching.is_over else "stops it"
            return fetch_news(fetching) + Content.styled(f"  Esc {way}", _MUTED)
        if offered is None:
            return Content("")
        does = "loads" if offered.is_here else "downloads"
        size = "" if offered.is_here else f", {gigabytes(offered.size_gb)}"
        what = f"{short_name(DEFAULT_MODEL)} is a small model that comes with mlxspec"
        return Content.assemble(
            (f"{what}; for better answers: ", _MUTED),
            (f"{KEY} Enter", "$foreground"),
            (f" {does} {short_name(offered.source)}{size}", _MUTED),
        )

    def agree(self) -> bool:
        """Do what the row offers; return whether it offers anything."""
        fetching = self._fetching
        if fetching is None and self._offered is None:
            return False
        if fetching is None or fetching.is_over:
            self.fetch()
        return True

    def fetch(self, word: str = "") -> None:
        """Fetch the model for this machine, or go on with it where it is here; or "stop"."""
        fetching, model = self._fetching, self._model
        if fetching is not None:
            model = replace(fetching.model, is_here=not fetching.error)
        if word == "stop":
            if fetching is None or not self.leave():
                self._screen.notify("no model is being downloaded", timeout=3)
        elif model is None:
            self._screen.notify("no model is known to fit this machine: see /model", timeout=4)
        elif fetching is not None and not fetching.is_over:
            self._screen.notify("it is on its way; Esc stops it", timeout=3)
        elif model.is_here:
            self._go_on(model)
        else:
            self._begin(model)

    def leave(self) -> bool:
        """Stop the download, or stay with the present model; return whether there was either."""
        fetching = self._fetching
        if fetching is None:
            return False
        if fetching.is_over:
            self._answered, self._is_sought = fetching, False
            self.seek()  # it may be here now
        fetching.is_stopped = True
        self._screen.show_now()
        return True

    def _begin(self, model: ModelEntry) -> None:
        assert self._user_data is not None
        usable = self._catalogue.memory_gb if self._catalogue is not None else 0.0
        if model.fit_in(usable) == "too large":
            takes = f"takes {gigabytes(model.memory_gb)} of memory, and models may use"
            why = f"{model.name} {takes} {gigabytes(usable)} here: choose another with /model"
            self._screen.notify(why, severity="warning", timeout=6)
            return
        self._user_data.fetch(model)
        self._screen.show_now()

    def _go_on(self, model: ModelEntry) -> None:
        """Load the model, now and at the next starts."""
        self._answered = self._fetching or self._answered
        choice = replace(self._feed.state.choice or ModelChoice(), model=model.source)
        self._screen.app.change("model", model.source)
        self._load(replace(choice, drafter="auto"))


def short_name(source: str) -> str:
    """Return the name of a repository without its owner and the form of its weights."""
    return safe_line(_FORM.sub("", source.rpartition("/")[2]))
