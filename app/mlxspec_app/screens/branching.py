"""The part of the chat that moves between chats and branches, by commands and by keys."""

import random
from typing import TYPE_CHECKING, NamedTuple

from textual import on, work

from mlxspec.trace.events import Event
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.messages import said
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.conversation.session import ChatCleared, ChatOpened, SessionEvent
from mlxspec_app.screens.keeping import KeepingScreen
from mlxspec_app.store.entries import ChosenChat
from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.questions import find_chat, find_last, find_version, fork_at
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.version_mark import VersionMark

if TYPE_CHECKING:
    from mlxspec_app.store.recorder import Recorder

_SEED_BITS = 32


class _Edit(NamedTuple):
    """Which user turn is being edited, and what stood in the prompt before."""

    turn: int
    draft: str


class BranchingScreen(KeepingScreen):
    """Lists chats, forks them, edits what was said, and switches between the outcomes."""

    _edit: _Edit | None = None

    @property
    def is_editing(self) -> bool:
        """Whether the prompt holds a turn that was said before."""
        return self._edit is not None

    def take_in(self, event: Event | SessionEvent) -> None:
        super().take_in(event)
        if isinstance(event, ChatCleared | ChatOpened):
            self.end_edit()

    # ---- chats ------------------------------------------------------------------------------

    def action_chats(self, words: str = "") -> None:
        if self.store is None:
            self.notify("no chats are kept in this session", timeout=4)
            return
        from mlxspec_app.screens.history import HistoryScreen  # not before the first frame

        screen = HistoryScreen(self.store, words, on_deleted=self._leave_deleted)
        self.app.push_screen(screen, self._follow_choice)

    def action_continue(self) -> None:
        self.go_on_with(find_last)

    @work
    async def action_rename(self, title: str) -> None:
        def rename(recorder: "Recorder") -> None:
            if recorder.chat is None:
                raise GoneError("nothing was said in this chat yet: it has no title to change")
            recorder.writer.rename(recorder.chat, title)

        await self.ask(rename)
        self.look_around()

    def action_new_chat(self) -> None:
        self.unqueue()
        self.session.stop()
        self.session.new_chat()
        self.after_order()

    def _follow_choice(self, choice: ChosenChat | None) -> None:
        self.look_around()
        if choice is None:
            return
        if choice.chat is None:
            self.action_new_chat()
            return
        chat, message = choice.chat, choice.message
        if message is not None or chat != self.standing.chat:
            self.go_on_with(lambda recorder: find_chat(recorder, chat, message), message)

    def _leave_deleted(self, chat: int) -> None:
        if chat == self.standing.chat:
            self.action_new_chat()

    # ---- branches ---------------------------------------------------------------------------

    def action_fork(self) -> None:
        place = self._place()
        self.go_on_with(lambda recorder: fork_at(recorder, place))
        self.query_one(Prompt).focus()

    def action_version(self, step: int) -> None:
        """Switch the nearest message above that has several versions to another one."""
        places = [place for place in self.standing.versions if place <= self._place()]
        if places:
            self._switch(max(places), step)

    @on(VersionMark.Chosen)
    def _choose_version(self, event: VersionMark.Chosen) -> None:
        numbers = [message.number for message in said(self.state.messages)]
        if event.message in numbers:
            self._switch(numbers.index(event.message), event.step)

    def _switch(self, place: int, step: int) -> None:
        version = self.standing.versions.get(place)
        if version is not None and 1 <= version.number + step <= version.count:
            self.go_on_with(lambda recorder: find_version(recorder, place, step))

    def _place(self) -> int:
        """Return the place of the message that is pointed at, else of the last one."""
        messages = said(self.state.messages)
        pointed = self.query_one(Transcript).pointed_message
        return messages.index(pointed) if pointed in messages else len(messages) - 1

    def action_regenerate(self, seed: str = "") -> None:
        if seed == "new" and not self._draw_seed():
            return
        apply(self.state, OrderGiven())
        self.session.regenerate()
        self.query_one(Transcript).follow()
        self.after_order()

    def _draw_seed(self) -> bool:
        """Set another seed; return whether that could be done."""
        seed = random.getrandbits(_SEED_BITS)
        try:
            self.session.adjust("seed", str(seed))
        except ValueError as error:
            self.notify(str(error), severity="warning", timeout=4)
            return False
        self.notify(f"seed {seed}; it makes no difference at temperature 0", timeout=3)
        return True

    # ---- saying something else --------------------------------------------------------------

    def action_edit(self) -> None:
        """Offer the user turn that is pointed at, else the last one, to be said differently."""
        before = said(self.state.messages)[: self._place() + 1]
        turns = [message.text for message in before if message.role == "user"]
        if not turns:
            return
        prompt = self.query_one(Prompt)
        draft = self._edit.draft if self._edit is not None else prompt.text
        self._edit = _Edit(len(turns) - 1, draft)
        prompt.text = turns[-1]
        prompt.border_title = f"editing turn {len(turns)} · Enter sends, Esc keeps it as it was"
        prompt.move_cursor(prompt.document.end)
        prompt.focus()
        self.refresh_bindings()

    def end_edit(self) -> bool:
        """Give the prompt back what it held before; return whether a turn was being edited."""
        edit, self._edit = self._edit, None
        if edit is None:
            return False
        prompt = self.query_one(Prompt)
        prompt.text, prompt.border_title = edit.draft, None
        prompt.move_cursor(prompt.document.end)
        self.refresh_bindings()
        return True

    def send_edit(self, text: str) -> bool:
        """Say a turn differently, if one is being edited; return whether it was."""
        edit = self._edit
        if edit is None or not self.end_edit():
            return False
        if self.state.phase == "busy":
            self.unqueue()
            self.session.stop()
        apply(self.state, OrderGiven())
        self.session.edit(edit.turn, text)
        self.query_one(Transcript).follow()
        return True
