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
from mlxspec_app.picker.catalogue import Fetching, gigabytes
from mlxspec_app.picker.model_rows import fetch_news
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.user_data import UserData

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

    @property
    def fetching(self) -> Fetching | None:
        """The last download, until its end is answered or the model is loaded."""
        fetching = self._user_data.fetching if self._user_data is not None else None
        choice = self._feed.state.choice
        is_loaded = fetching and choice and choice.model == fetching.model.source
        return None if is_loaded or fetching is self._answered else fetching

    @property
    def _offered(self) -> ModelEntry | None:
        """The model that is offered: in an empty chat with the embedded one."""
        state = self._feed.state
        is_toy = state.is_empty and state.phase == "ready" and state.target == DEFAULT_MODEL
        return self._model if is_toy and self.fetching is None else None

    def seek(self) -> None:
        """Look, in a thread, which model fits this machine, and whether it is here."""
        catalogue = self._user_data.catalogue if self._user_data is not None else None
        if catalogue is None or self._model is not None:
            return

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
        fetching, offered = self.fetching, self._offered
        if fetching is not None:
            way = "stays" if fetching.is_over else "stops it"
            return fetch_news(fetching) + Content.styled(f"  Esc {way}", _MUTED)
        if offered is None:
            return Content("")
        name, size = short_name(offered.source), gigabytes(offered.size_gb)
        does = f" loads {name}" if offered.is_here else f" downloads {name}, {size}"
        what = f"{short_name(DEFAULT_MODEL)} is a small model that comes with mlxspec"
        return Content.assemble(
            (f"{what}; for better answers: ", _MUTED), ("f Enter", "$foreground"), (does, _MUTED)
        )

    def agree(self) -> bool:
        """Do what the row offers; return whether it offers anything."""
        is_asked = self.fetching is not None or self._offered is not None
        if is_asked:
            self.fetch()
        return is_asked

    def fetch(self, word: str = "") -> None:
        """Fetch the model for this machine, or load it where it is here; or "stop"."""
        fetching, model = self.fetching, self._model
        if fetching is not None:
            model = replace(fetching.model, is_here=fetching.is_over and not fetching.error)
        if word:
            self.leave()
        elif model is None:
            self._screen.notify("no model is known to fit this machine: see /model", timeout=4)
        elif model.is_here:
            self._go_on(model)
        elif self._user_data is not None and (fetching is None or fetching.is_over):
            self._user_data.fetch(model)
        self._screen.show_now()

    def leave(self) -> bool:
        """Stop the download, or stay with the present model; return whether there was either."""
        fetching = self.fetching
        if fetching is None:
            return False
        fetching.is_stopped = True
        if fetching.is_over:
            self._answered, self._model = fetching, None
            self.seek()  # the model may be here now
        return True

    def _go_on(self, model: ModelEntry) -> None:
        """Load the model, now and at the next starts."""
        self._screen.app.change("model", model.source)
        choice = self._feed.state.choice or ModelChoice()
        self._load(replace(choice, model=model.source, drafter="auto"))


def short_name(source: str) -> str:
    """Return the name of a repository without its owner and the form of its weights."""
    return safe_line(_FORM.sub("", source.rpartition("/")[2]))
