"""The part of the chat that knows its user: it follows the settings and what was sent before.

Where nothing was kept yet, it introduces itself.
"""

from collections.abc import Callable
from contextlib import suppress

from mlxspec.params.table import KEPT
from mlxspec_app.app_choices import choices_of
from mlxspec_app.conversation.session import Session
from mlxspec_app.picker.introduction import Introduction
from mlxspec_app.screens.branching import BranchingScreen
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import DEFAULTS
from mlxspec_app.settings.values import value_of
from mlxspec_app.user_data import Desk
from mlxspec_app.widgets.chat.prompt import Prompt


class DeskScreen(BranchingScreen):
    """A chat at the user's desk."""

    def __init__(
        self,
        session: Session,
        desk: Desk | None = None,
        introduce: Callable[[], Introduction] | None = None,
        *,
        continues: bool = False,
    ) -> None:
        """Make a screen for a session that has not been started.

        Args:
            session: The session.
            desk: Keeps what is said; None keeps nothing.
            introduce: Finds what a newcomer is told; None tells nothing.
            continues: Whether to go on with the last chat.
        """
        super().__init__(session, desk, continues=continues)
        self._introduce = introduce

    def begin(self) -> None:
        super().begin()
        if self.store is not None:
            self.run_worker(self._remember_sent())
        if self._introduce is not None and self.desk is not None and self.desk.is_new:
            from mlxspec_app.screens.first_run import FirstRunScreen

            self.app.push_screen(FirstRunScreen(self._introduce, self.state))

    def on_mount(self) -> None:
        for notice in choices_of(self.app).notices:
            self.session.tell(notice)

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        super().follow_settings(before, settings)
        for name in DEFAULTS:
            value = value_of(settings, name)
            if value != value_of(before, name):
                with suppress(ValueError):  # a recording has nothing to adjust
                    self.session.adjust(KEPT[name].word, str(value))

    async def _remember_sent(self) -> None:
        sent = await self.ask(lambda keeper: keeper.writer.reader.recent_turns(), is_quiet=True)
        for prompt in self.query(Prompt):
            prompt.remember(sent or [])
