"""Makes room when a chat no longer fits the model's context: as the settings say, or asks how."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from mlxspec.trace.events import Event
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.conversation.messages import turns_of
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.conversation.session import ContextFull, ModelChoice, SessionEvent
from mlxspec_app.settings.file import Settings

Way = Literal["drop", "rotate", "new"]
"""`drop`: leave out the oldest turns; `rotate`: use a rotating cache; `new`: begin a new chat."""


class ContextAnswer(NamedTuple):
    """What the user wants.

    Attributes:
        way: What to do.
        is_for_good: Whether to do so from now on without asking.
    """

    way: Way
    is_for_good: bool


class ContextRoom:
    """Has a turn answered that the session refused, because it does not fit."""

    def __init__(
        self, feed: Feed, page: ChatPage, question: Callable[[Sequence[Way], int], None]
    ) -> None:
        """Leave nothing out yet.

        Args:
            feed: Tells when a turn does not fit.
            page: Shows what comes of it.
            question: Asks the user for one of the ways, who ends in `take`; given as well how
                many tokens fit, or 0 where that is not known.
        """
        self._feed, self._page, self._question = feed, page, question
        self._drops = False
        self._tried: ModelChoice | None = None  # offered once: if it failed, it fails again

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Leave out the oldest turns before a turn is refused, where the settings say so."""
        if settings.context_full != before.context_full:
            self._drop_oldest(settings.context_full == "drop")

    def take_in(self, event: Event | SessionEvent) -> None:
        if isinstance(event, ContextFull):
            self._page.call_after_refresh(self._make_room)

    def ways(self) -> list[Way]:
        """Return the ways to have the refused turn answered."""
        ways: list[Way] = ["drop", "rotate", "new"]
        turns = turns_of(self._feed.state.messages)
        if self._drops or all(turn.reply is None for turn in turns[:-1]):
            ways = ["rotate"]  # the turn is too long on its own
        if self._rotating() in (None, self._tried):
            ways.remove("rotate")
        return ways

    def take(self, answer: ContextAnswer | None) -> None:
        """Have the refused turn answered, or leave it where there is no answer."""
        if answer is None:
            return
        self._feed.note(OrderGiven())
        self._go(answer.way)
        if answer.is_for_good:
            self._page.choices.change("context_full", answer.way)
        self._page.after_order()

    def _make_room(self) -> None:
        ways = self.ways()
        wanted = self._page.choices.settings.context_full
        if wanted != "ask" and wanted in ways:
            self.take(ContextAnswer(wanted, is_for_good=False))
        elif ways:
            self._question(ways, self._feed.state.context_length)

    def _go(self, way: Way) -> None:
        session = self._feed.session
        if way == "new":
            text = turns_of(self._feed.state.messages)[-1].user
            session.new_chat()
            session.send(text)
            return
        if way == "drop":
            self._drop_oldest(True)
        elif (rotating := self._rotating()) is not None:
            self._tried = rotating
            session.load(rotating)
        session.regenerate()

    def _drop_oldest(self, allowed: bool) -> None:
        if allowed != self._drops:
            self._drops = allowed
            self._feed.session.forget_oldest(allowed)

    def _rotating(self) -> ModelChoice | None:
        """Return the session's models with a rotating cache, or None if they have one already."""
        state = self._feed.state
        if state.choice is None or state.choice.max_kv_size is not None or not state.context_length:
            return None
        return replace(state.choice, max_kv_size=state.context_length)
