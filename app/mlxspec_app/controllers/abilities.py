"""Which actions of a chat are possible now: the rules behind its keys and commands."""

from collections.abc import Callable

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.model_switch import ModelSwitch
from mlxspec_app.controllers.storage import ChatStorage
from mlxspec_app.controllers.turn_editor import TurnEditor
from mlxspec_app.conversation.messages import without_system


class Abilities:
    """One rule per action. An action without a rule is always possible."""

    def __init__(
        self, feed: Feed, storage: ChatStorage, editor: TurnEditor, models: ModelSwitch
    ) -> None:
        self._feed, self._models = feed, models
        self._rules: dict[str, Callable[[], bool]] = {
            "stop": lambda: self.is_at_work or bool(feed.state.queue) or editor.is_editing,
            "replay": lambda: feed.state.reply is not None or feed.state.phase == "failed",
            "model": lambda: models.can_choose,
            "draft": lambda: models.can_choose,
            "verify": lambda: feed.state.phase == "ready" and feed.state.reply is not None,
            "race": lambda: feed.state.phase == "ready",
            "alternatives": lambda: (
                feed.state.phase in ("ready", "busy") and feed.state.reply is not None
            ),
            "regenerate": self._can_regenerate,
            "new_chat": lambda: not feed.state.is_empty,
            "edit": lambda: not feed.state.is_empty,
            "fork": lambda: not feed.state.is_empty and storage.store is not None,
            "version": lambda: bool(storage.standing.versions),
        }

    @property
    def is_at_work(self) -> bool:
        """Whether a reply or a download can be stopped."""
        return self._feed.state.phase == "busy" or self._feed.state.loading is not None

    def allows(self, action: str) -> bool:
        rule = self._rules.get(action)
        return rule is None or rule()

    def _can_regenerate(self) -> bool:
        state = self._feed.state
        if state.phase == "failed":
            return self._models.can_choose  # without a model, /retry loads the models again
        return state.phase == "ready" and bool(without_system(state.messages))
