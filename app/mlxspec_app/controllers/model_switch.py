"""Loads other models during a chat: by name, from the picker, or the same ones again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from mlxspec.drafting.names import check_drafter
from mlxspec_app.commands import CommandError
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.conversation.session import ModelChoice

_DEFAULT = "default"
Part = Literal["models", "drafters"]


class ModelSwitch:
    """Changes the models of the session."""

    def __init__(self, feed: Feed, page: ChatPage, pick: Callable[[Part], bool]) -> None:
        """`pick` opens the picker, which calls `load`; it returns whether there is a picker."""
        self._feed, self._page, self._pick = feed, page, pick

    @property
    def can_choose(self) -> bool:
        """Whether other models can be loaded."""
        return self._feed.state.choice is not None

    def choose_model(self, name: str = "") -> None:
        """Load the named model; without a name, open the picker."""
        if name:
            model = "" if name == _DEFAULT else name
            # the present drafter may not fit the new model
            self.load(replace(self._now, model=model, drafter="auto"))
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
            self.load(replace(self._now, drafter=name))
        else:
            self._have_picked("drafters")

    def load_again(self) -> None:
        self.load(self._now)

    def load(self, choice: ModelChoice | None) -> None:
        """Load the chosen models once the running reply has ended; None changes nothing."""
        if choice is None:
            return
        if self._feed.state.phase == "busy":
            self._page.notify("the models will be loaded after this reply", timeout=3)
        self._feed.session.load(choice)
        self._page.after_order()

    @property
    def _now(self) -> ModelChoice:
        return self._feed.state.choice or ModelChoice()

    def _have_picked(self, part: Part) -> None:
        if not self._pick(part):
            self._page.notify("name the model: /model NAME, /draft NAME", timeout=3)
