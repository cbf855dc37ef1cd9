"""Ways to go on when the chat no longer fits the model's context."""

from dataclasses import replace
from typing import Literal

from mlxspec_app.conversation.messages import turns_of
from mlxspec_app.conversation.session import ModelChoice, Session
from mlxspec_app.conversation.state import ChatState

Way = Literal["drop", "rotate", "new"]
"""`drop`: leave out the oldest turns; `rotate`: use a rotating cache; `new`: begin a new chat."""


class ContextKeeper:
    """Frees context of a session."""

    def __init__(self, session: Session) -> None:
        """Set the session, which refuses turns that do not fit its context."""
        self._session = session
        self._drops = False
        self._tried: ModelChoice | None = None  # offered once: if it failed, it fails again

    def drop_oldest(self, allowed: bool) -> None:
        """Set whether the session may leave out the oldest turns from now on."""
        if allowed != self._drops:
            self._drops = allowed
            self._session.forget_oldest(allowed)

    def ways(self, state: ChatState) -> list[Way]:
        """Return the ways to have the refused turn answered."""
        ways: list[Way] = ["drop", "rotate", "new"]
        has_earlier = any(turn.reply is not None for turn in turns_of(state.messages)[:-1])
        if self._drops or not has_earlier:
            ways = ["rotate"]  # the turn is too long on its own
        if self._rotating(state) in (None, self._tried):
            ways.remove("rotate")
        return ways

    def take(self, way: Way, state: ChatState) -> None:
        """Have the refused turn answered in one of the ways."""
        if way == "new":
            text = turns_of(state.messages)[-1].user
            self._session.new_chat()
            self._session.send(text)
            return
        if way == "drop":
            self.drop_oldest(True)
        elif (rotating := self._rotating(state)) is not None:
            self._tried = rotating
            self._session.load(rotating)
        self._session.regenerate()

    def _rotating(self, state: ChatState) -> ModelChoice | None:
        """Return the session's models with a rotating cache, or None if they have one already."""
        choice = state.choice
        if choice is None or choice.max_kv_size is not None or not state.context_length:
            return None
        return replace(choice, max_kv_size=state.context_length)
