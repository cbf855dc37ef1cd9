"""Loads other models while a chat lasts: by name, the same ones again, or from the picker."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.conversation.session import ModelChoice

_DEFAULT = "default"
Part = Literal["models", "drafters"]


class ModelSwitch:
    """Gives the session other models."""

    def __init__(self, feed: Feed, page: ChatPage, pick: Callable[[Part], bool]) -> None:
        """Load nothing yet.

        Args:
            feed: Knows the models there are.
            page: Shows what comes of it.
            pick: Has the user choose, who ends in `load`; returns whether there is a choice.
        """
        self._feed, self._page, self._pick = feed, page, pick

    @property
    def can_choose(self) -> bool:
        """Whether other models can be loaded."""
        return self._feed.state.choice is not None

    def choose_model(self, name: str = "") -> None:
        """Load the model named, or have the user choose."""
        if name:
            model = "" if name == _DEFAULT else name
            self.load(replace(self._now, model=model, drafter="auto"))
        else:
            self._have_picked("models")

    def choose_drafter(self, name: str = "") -> None:
        """Draft with the drafter named, or have the user choose."""
        if name:
            self.load(replace(self._now, drafter=name))
        else:
            self._have_picked("drafters")

    def load_again(self) -> None:
        """Try once more to load what could not be loaded."""
        self.load(self._now)

    def load(self, choice: ModelChoice | None) -> None:
        """Load what was chosen, if anything was, once the reply has ended."""
        if choice is None:
            return
        if self._feed.state.phase == "busy":
            self._page.notify("the models are loaded when the reply has ended", timeout=3)
        self._feed.session.load(choice)
        self._page.after_order()

    @property
    def _now(self) -> ModelChoice:
        return self._feed.state.choice or ModelChoice()

    def _have_picked(self, part: Part) -> None:
        if not self._pick(part):
            self._page.notify("name the model: /model NAME, /draft NAME", timeout=3)
