"""A conversation screen at the user's desk: it begins as the settings say, and what is said stays.

It remembers what was sent in earlier sessions, and introduces the app where there was none.
"""

from asyncio import wrap_future
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict

from mlxspec.events import Event
from mlxspec_app.app_choices import choices_of
from mlxspec_app.desk import Desk
from mlxspec_app.introduction import Introduction
from mlxspec_app.screens.first_run import FirstRunScreen
from mlxspec_app.screens.room import RoomScreen
from mlxspec_app.session import Session, SessionEvent
from mlxspec_app.settings import Settings
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.thread import StoreThread
from mlxspec_app.widgets.prompt import Prompt

_ADJUSTED = {"temperature": "temp", "max_tokens": "max"}  # settings that have another name there


class DeskScreen(RoomScreen):
    """Follows the settings, and keeps what is said."""

    def __init__(
        self,
        session: Session,
        desk: Desk | None = None,
        introduce: Callable[[], Introduction] | None = None,
    ) -> None:
        """Make a screen for a session that has not been started.

        Args:
            session: The session.
            desk: Keeps what is said.
            introduce: Finds what a newcomer is told; None tells nothing.
        """
        super().__init__(session)
        self.desk = desk
        self._introduce = introduce

    def take_in(self, event: Event | SessionEvent) -> None:
        super().take_in(event)
        if self.desk is not None:
            self.desk.take_in(event)

    def on_unmount(self) -> None:
        if self.desk is not None:
            self.desk.log.note(self.frame_clock.describe())

    def begin(self) -> None:
        super().begin()
        if self._introduce is not None and self.desk is not None and self.desk.is_new:
            self.app.push_screen(FirstRunScreen(self._introduce, self.state))

    def on_mount(self) -> None:
        for notice in choices_of(self.app).notices:
            self.session.tell(notice)
        if self.desk is not None and self.desk.store is not None:
            self.run_worker(self._remember_sent(self.desk.store))

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        super().follow_settings(before, settings)
        for name, value in asdict(settings.sampling).items():
            if value != getattr(before.sampling, name):
                with suppress(ValueError):  # a recording has nothing to adjust
                    self.session.adjust(_ADJUSTED.get(name, name), str(value))

    async def _remember_sent(self, store: StoreThread) -> None:
        with suppress(StoreError):  # it was told when the store was opened
            asked: Future[list[str]] = store.ask(lambda keeper: keeper.writer.reader.recent_turns())
            sent = await wrap_future(asked)
            for prompt in self.query(Prompt):
                prompt.remember(sent)
