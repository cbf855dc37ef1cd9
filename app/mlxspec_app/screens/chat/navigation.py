"""The screens that a chat opens over itself: stored chats, a replay, models, questions.

Such a screen is imported only when it opens: earlier imports would delay the first frame.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from textual.screen import Screen

from mlxspec.errors import TraceError
from mlxspec_app.conversation.events import AnyEvent, ModelChoice, RaceFinished
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.orders import Stop
from mlxspec_app.picker.introduction import Introduction
from mlxspec_app.playback.demo import read_demo
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.race import Race, Track
from mlxspec_app.screens.chat.chats import Chats
from mlxspec_app.screens.chat.context_full import ContextFullScreen
from mlxspec_app.screens.chat.context_overflow import ContextAnswer, Way
from mlxspec_app.screens.chat.next_reply import Part
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.replay import DemoScreen, LiveReplayScreen
from mlxspec_app.user_data import UserData


class ChatNavigation:
    """Opens other screens; a callback gets the user's answer."""

    def __init__(self, feed: Feed, screen: Screen[None], user_data: UserData | None) -> None:
        self._feed, self._screen, self._user_data = feed, screen, user_data

    def introduce(self, find: Callable[[], Introduction]) -> None:
        """Show the cards of the first run, with the facts that `find` returns."""
        from mlxspec_app.screens.first_run import FirstRunScreen

        self._screen.app.push_screen(FirstRunScreen(find, self._feed.state))

    def choose_chat(self, chats: Chats, words: str) -> None:
        """Show the stored chats that match `words`, and open the chosen one; "" matches all."""
        if chats.store is None:
            self._screen.notify("no chats are kept in this session", timeout=4)
            return
        from mlxspec_app.screens.history import HistoryScreen

        screen = HistoryScreen(chats.store, words, on_deleted=chats.leave_deleted)
        self._screen.app.push_screen(screen, chats.follow_choice)

    def choose_model(self, begins_with: Part, then: Callable[[ModelChoice | None], None]) -> bool:
        """Open the model picker; return whether there is one.

        The list `begins_with` has the focus first; `then` gets the chosen models, or None.
        """
        if self._user_data is None or self._user_data.catalogue is None:
            return False
        from mlxspec_app.screens.models import ModelsScreen

        screen = ModelsScreen(
            self._user_data,
            self._user_data.catalogue,
            self._feed.state,
            lambda: self._feed.send(Stop()),
            begins_with=begins_with,
        )
        self._screen.app.push_screen(screen, then)
        return True

    def find_models(self, then: Callable[[Sequence[str]], None]) -> None:
        """List the names for `/model` in a thread, because that reads disks; `then` gets them."""
        catalogue = self._user_data.catalogue if self._user_data is not None else None
        if catalogue is None:
            return

        async def find() -> None:
            with suppress(Exception):  # the model picker reports disk errors
                models = await asyncio.to_thread(catalogue.models)
                then([entry.source or "default" for entry in models if not entry.problem])

        self._screen.run_worker(find(), group="names")

    def choose_way(
        self, ways: Sequence[Way], context_length: int, then: Callable[[ContextAnswer | None], None]
    ) -> None:
        """Ask what to do with a chat that no longer fits the context.

        `context_length` is in tokens, 0 if unknown; `then` gets the answer, or None.
        """
        self._screen.app.push_screen(ContextFullScreen(ways, context_length), then)

    def handle(self, event: AnyEvent) -> None:
        """Play a race as soon as its runs are recorded."""
        if isinstance(event, RaceFinished) and event.plain:
            from mlxspec_app.screens.race import LiveRaceScreen

            runs = [Track("A", event.plain), Track("B", event.drafted)]
            self._screen.app.push_screen(LiveRaceScreen(Race(runs, time.monotonic)))

    def replay(self) -> None:
        """Replay the conversation, or a recording of the app if there is no reply yet."""
        state = self._feed.state

        def num_rounds() -> int:
            messages = self._feed.state.messages
            return sum(len(m.rounds) for m in messages if isinstance(m, Reply))

        if state.reply is not None:
            self._screen.app.push_screen(LiveReplayScreen(events_of(state), num_rounds))
            return
        try:
            self._screen.app.push_screen(DemoScreen(read_demo()))
        except TraceError as error:
            self._screen.notify(str(error), severity="warning", timeout=4)
