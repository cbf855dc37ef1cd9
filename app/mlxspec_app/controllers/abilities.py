"""What can be done in a chat as it stands: which keys and commands have something to act on."""

from collections.abc import Callable

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.keeper import ChatKeeper
from mlxspec_app.controllers.model_switch import ModelSwitch
from mlxspec_app.controllers.turn_editor import TurnEditor
from mlxspec_app.conversation.messages import said


class Abilities:
    """Answers for every action of a chat; one that is not listed can always be done."""

    def __init__(
        self, feed: Feed, keeper: ChatKeeper, editor: TurnEditor, models: ModelSwitch
    ) -> None:
        """Judge by what these know when they are asked."""
        self._feed, self._models = feed, models
        self._rules: dict[str, Callable[[], bool]] = {
            "stop": lambda: self.is_at_work or bool(feed.state.queue) or editor.is_editing,
            "replay": lambda: feed.state.reply is not None or feed.state.phase == "failed",
            "model": lambda: models.can_choose,
            "draft": lambda: models.can_choose,
            "verify": lambda: feed.state.phase == "ready" and feed.state.reply is not None,
            "regenerate": self._can_regenerate,
            "new_chat": lambda: not feed.state.is_empty,
            "edit": lambda: not feed.state.is_empty,
            "fork": lambda: not feed.state.is_empty and keeper.store is not None,
            "version": lambda: bool(keeper.standing.versions),
        }

    @property
    def is_at_work(self) -> bool:
        """Whether there is a reply or a download to stop."""
        return self._feed.state.phase == "busy" or self._feed.state.loading is not None

    def allows(self, action: str) -> bool:
        """Return whether an action can do something now."""
        rule = self._rules.get(action)
        return rule is None or rule()

    def _can_regenerate(self) -> bool:
        state = self._feed.state
        if state.phase == "failed":
            return self._models.can_choose  # then the models are loaded once more
        return state.phase == "ready" and bool(said(state.messages))
