"""A screen from which other models can be loaded: by name, or from the picker."""

from dataclasses import replace

from mlxspec_app.conversation.session import ModelChoice
from mlxspec_app.screens.conversation import ConversationScreen
from mlxspec_app.user_data import Desk

_DEFAULT = "default"


class ChoosingScreen(ConversationScreen):
    """A conversation whose models can be changed while it lasts.

    Attributes:
        desk: Knows the models that can be chosen; None where none can be.
    """

    desk: Desk | None = None

    def action_model(self, name: str = "") -> None:
        if name:
            self._load(replace(self._now, model="" if name == _DEFAULT else name, drafter="auto"))
        else:
            self._pick("models")

    def action_draft(self, name: str = "") -> None:
        if name:
            self._load(replace(self._now, drafter=name))
        else:
            self._pick("drafters")

    def load_again(self) -> None:
        """Try once more to load what could not be loaded."""
        self._load(self._now)

    @property
    def can_choose(self) -> bool:
        """Whether other models can be loaded."""
        return self.state.choice is not None

    @property
    def _now(self) -> ModelChoice:
        return self.state.choice or ModelChoice()

    def _pick(self, begins_with: str) -> None:
        if self.desk is None or self.desk.catalogue is None:
            self.notify("name the model: /model NAME, /draft NAME", timeout=3)
            return
        from mlxspec_app.screens.models import ModelsScreen  # not before the first frame

        screen = ModelsScreen(
            self.desk,
            self.desk.catalogue,
            self.state,
            self.session.stop,
            begins_with=begins_with,
        )
        self.app.push_screen(screen, self._load)

    def _load(self, choice: ModelChoice | None) -> None:
        if choice is None:
            return
        if self.state.phase == "busy":
            self.notify("the models are loaded when the reply has ended", timeout=3)
        self.session.load(choice)
        self.wake()
        self.tick()
