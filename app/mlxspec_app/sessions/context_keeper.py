"""What to do when the chat no longer fits the model's context: which ways help, and to take one."""

from dataclasses import replace
from typing import Literal

from mlxspec_app.conversation.messages import turns_of
from mlxspec_app.conversation.session import ModelChoice, Session
from mlxspec_app.conversation.state import ChatState

Way = Literal["drop", "rotate", "new"]
"""`drop` the oldest turns; `rotate`, let the cache forget the oldest tokens; begin a `new` chat."""


class ContextKeeper:
    """Makes room in the context of a session."""

    def __init__(self, session: Session) -> None:
        """Keep the context of a session, which refuses turns that do not fit."""
        self._session = session
        self._drops = False
        self._tried: ModelChoice | None = None  # what could not be had need not be asked for again

    def drop_oldest(self, allowed: bool) -> None:
        """Say whether the oldest turns may be left out from now on, before a turn is refused."""
        if allowed != self._drops:
            self._drops = allowed
            self._session.forget_oldest(allowed)

    def ways(self, state: ChatState) -> list[Way]:
        """Return what lets the model answer the turn that was refused; most likely all of them."""
        ways: list[Way] = ["drop", "rotate", "new"]
        has_earlier = any(turn.reply is not None for turn in turns_of(state.messages)[:-1])
        if self._drops or not has_earlier:
            ways = ["rotate"]  # the turn is too long on its own
        if self._rotating(state) in (None, self._tried):
            ways.remove("rotate")
        return ways

    def take(self, way: Way, state: ChatState) -> None:
        """Have the refused turn answered."""
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
        """Return the models of the session with a rotating cache, or None where it has one."""
        choice = state.choice
        if choice is None or choice.max_kv_size is not None or not state.context_length:
            return None
        return replace(choice, max_kv_size=state.context_length)
