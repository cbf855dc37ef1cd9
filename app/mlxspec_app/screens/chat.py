"""The chat screen: a conversation with a prompt, stored among others.

The screen composes widgets and controllers. It routes each key, command and widget message to the
controller that it concerns, and the events of the session to all that listen.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import BindingType

from mlxspec.trace.alternatives import Alternative
from mlxspec_app.controllers.abilities import Abilities
from mlxspec_app.controllers.alternatives import Alternatives
from mlxspec_app.controllers.branches import Branches
from mlxspec_app.controllers.chats import ChatSwitch
from mlxspec_app.controllers.context_overflow import ContextOverflow, Way
from mlxspec_app.controllers.exporting import Exporter
from mlxspec_app.controllers.leaving import Leaving
from mlxspec_app.controllers.model_switch import ModelSwitch, Part
from mlxspec_app.controllers.outbox import Outbox
from mlxspec_app.controllers.sampling import SamplingSwitch
from mlxspec_app.controllers.storage import ChatStorage
from mlxspec_app.controllers.turn_editor import TurnEditor
from mlxspec_app.conversation.finding import Hit, find_words
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.screen_events import OrderGiven, StopAsked
from mlxspec_app.conversation.session import Session
from mlxspec_app.conversation.token_cursor import Step
from mlxspec_app.picker.introduction import Introduction
from mlxspec_app.screens.chat_navigation import ChatNavigation
from mlxspec_app.screens.conversation import ConversationScreen
from mlxspec_app.screens.help import Key
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.keys.chat import CHAT, FIND, PROMPT_KEYS, TRANSCRIPT
from mlxspec_app.settings.keys.chats import HISTORY, LIST
from mlxspec_app.settings.keys.names import key_list
from mlxspec_app.store.records import Overview
from mlxspec_app.text.mentions import MentionError, with_files
from mlxspec_app.text.safe_text import safe_text
from mlxspec_app.user.editor import EditorError, edit_text
from mlxspec_app.user.unsent import UnsentText
from mlxspec_app.user_data import UserData
from mlxspec_app.widgets.chat.command_hints import CommandHints
from mlxspec_app.widgets.chat.find_bar import FindBar
from mlxspec_app.widgets.chat.inspector import Inspector
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.version_mark import VersionMark
from mlxspec_app.widgets.chat.welcome import Welcome


class ChatScreen(ConversationScreen):
    """A chat with a model. Messages typed while the model is busy wait in a queue."""

    BINDINGS: ClassVar[list[BindingType]] = list(CHAT)
    AUTO_FOCUS = "Prompt"
    FOLLOW_KEYS = "Ctrl+End or /follow"

    def __init__(
        self,
        session: Session,
        user_data: UserData | None = None,
        introduce: Callable[[], Introduction] | None = None,
        *,
        continues: bool = False,
    ) -> None:
        """Make a screen for a session that has not started.

        Without `user_data` nothing is stored. `introduce` finds the facts for the cards of the
        first run; None shows no cards. With `continues` the screen opens the last chat.
        """
        super().__init__(session)
        self.user_data, self._introduce, self._continues = user_data, introduce, continues
        self.outbox = Outbox(self.feed, self)
        self.storage = ChatStorage(self.feed, self, self.outbox, user_data)
        self.editor = TurnEditor(self.feed, self, self.outbox)
        self._navigation = ChatNavigation(self.feed, self, user_data)
        self._chats = ChatSwitch(self.feed, self, self.outbox, self.storage)
        self._sampling = SamplingSwitch(self.feed, self)
        self._branches = Branches(self.feed, self, self.storage, self._sampling)
        self._models = ModelSwitch(self.feed, self, self._pick_models)
        self._abilities = Abilities(self.feed, self.storage, self.editor, self._models)
        self._overflow = ContextOverflow(self.feed, self, self._ask_for_way)
        self._alternatives = Alternatives(
            self.feed, lambda found: self.query_one(Inspector).show_alternatives(found)
        )
        unsent = UnsentText(user_data.paths.unsent) if user_data is not None else None
        self._leaving = Leaving(self.feed, self, unsent)
        self.feed.listen(
            self._navigation.handle,
            self._overflow.handle,
            self.storage.handle,
            self.editor.handle,
            self.pacer.handle,
            self._alternatives.handle,
        )

    def orders(self) -> dict[str, Callable[..., object]]:
        return {
            **super().orders(),
            "adjust": self._sampling.adjust,
            "chats": self.action_chats,
            "continue": self.storage.open_last,
            "draft": self._models.choose_drafter,
            "edit": self.editor.begin,
            "editor": self.action_editor,
            "export": Exporter(self.feed, self, lambda: self.storage.standing.title).export,
            "find": self.action_find,
            "fork": self._branches.fork,
            "model": self._models.choose_model,
            "new_chat": self._chats.begin_new,
            "race": self._race,
            "regenerate": self.action_regenerate,
            "rename": self._chats.rename,
            "replay": self.action_replay,
            "stop": self.action_stop,
            "system": self._set_system,
            "verify": self._verify,
        }

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def compose_controls(self) -> ComposeResult:
        hints = CommandHints()
        yield FindBar(lambda words: find_words(self.state.messages, words), self._show_hit)
        yield hints
        yield Prompt(hints)

    def active_keys(self) -> list[Key]:
        keys = key_list((*CHAT, *FIND, *TRANSCRIPT, *HISTORY, *LIST), self.choices.keys)
        return [Key(*row) for row in (*PROMPT_KEYS, *keys)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._abilities.allows(action)

    # ---- time -------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self.transcript.can_focus = True
        for notice in self.choices.notices:
            self.session.notify(notice)
        self._overflow.follow_settings(Settings(), self.choices.settings)
        self._leaving.begin()

    def on_unmount(self) -> None:
        self._leaving.end()
        if self.user_data is not None:
            self.user_data.log.note(self.pacer.clock.describe())

    def begin(self) -> None:
        self.call_after_refresh(self._begin)  # loading keeps the CPU busy: draw a frame first

    def _begin(self) -> None:
        user_data = self.user_data
        if user_data is not None and user_data.stores_chats and user_data.store is None:
            user_data.store_chats_of(self.session, lambda: self.call_later(self.pacer.wake))
        self.storage.begin(continues=self._continues)
        if self.storage.store is not None:
            self.run_worker(self._remember_sent())
        if self._introduce is not None and user_data is not None and user_data.is_new:
            self._navigation.introduce(self._introduce)

    async def _remember_sent(self) -> None:
        sent = await self.storage.query_store(
            lambda it: it.writer.reader.recent_turns(), is_quiet=True
        )
        for prompt in self.query(Prompt):
            prompt.remember(sent or [])

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        super().follow_settings(before, settings)
        self._overflow.follow_settings(before, settings)
        self._sampling.follow_settings(before, settings)

    def on_phase_changed(self) -> None:
        self.storage.follow_phase()
        self.outbox.follow_phase()

    def after_order(self) -> None:
        """Show the effect of an order at once."""
        self.show_now()
        self.refresh_bindings()

    def show_chats(self, chats: Overview) -> None:
        """Show on the first page that there are stored chats."""
        self.query_one(Welcome).show_chats(chats)

    # ---- the prompt -------------------------------------------------------------------------

    def action_editor(self) -> None:
        self.prompt.call_later(self._edit_outside)  # after the queued keys

    def _edit_outside(self) -> None:
        """Suspend the app, and open the text of the prompt in the user's editor."""
        try:
            with self.app.suspend():
                text = edit_text(self.prompt.unsent)
        except SuspendNotSupported:
            self.notify("no other program can use the terminal here", timeout=4)
        except EditorError as error:
            self.notify(str(error), severity="warning", timeout=6)
        else:
            self.offer("\t".join(map(safe_text, text.split("\t"))))

    def action_find(self, words: str = "") -> None:
        self.query_one(FindBar).open(words)

    def _show_hit(self, hit: Hit | None) -> None:
        if hit is not None:
            self.transcript.show_hit(hit)
        else:
            self.clear_selection()
            self.prompt.focus()

    def selected_text(self) -> str:
        if self.query_one(FindBar).is_open:  # the selection is the hit
            return ""
        return super().selected_text() or self.prompt.selected_text

    def offer(self, line: str) -> None:
        self.prompt.fill(line)
        self.prompt.focus()

    def refuse(self, line: str, reason: str) -> None:
        super().refuse(line, reason)
        self.prompt.restore(safe_text(line))  # the field draws its text unfiltered

    @property
    def mode(self) -> str:
        """A word for the footer while letters are keys, else ""."""
        return "READING" if self.transcript.has_focus else ""

    def action_write(self) -> None:
        self.prompt.focus()

    def on_key(self, event: events.Key) -> None:
        """Type a letter that is no key of the transcript into the prompt."""
        is_letter = self.mode and event.is_printable and event.key not in self.active_bindings
        if is_letter and event.character:
            self.prompt.focus()
            self.prompt.insert(event.character)

    def interrupt(self) -> None:
        bar = self.query_one(FindBar)
        if bar.is_open:
            bar.close()
            return
        self._leaving.interrupt()

    @on(Prompt.Changed)
    def _follow_text(self, event: Prompt.Changed) -> None:
        self._leaving.follow_text()
        hints = self.query_one(CommandHints)
        if event.text_area.text.startswith("/model ") and "model" not in hints.words:
            hints.words["model"] = ()  # search only once
            self._navigation.find_models(lambda names: hints.offer("model", names))

    @on(Prompt.Submitted)
    def _submit(self, event: Prompt.Submitted) -> None:
        if self.editor.send(event.text):
            self.after_order()
            return
        if self.enter(event.text):
            return
        try:
            text = with_files(event.text, Path.cwd())
        except MentionError as error:
            self.notify(str(error), severity="warning", timeout=6)
            self.prompt.restore(event.text)
            return
        self.outbox.submit(text)
        self.after_order()

    @on(Welcome.Chosen)
    def _choose(self, event: Welcome.Chosen) -> None:
        self.prompt.focus()
        if self.state.phase == "ready":
            self.outbox.submit(event.prompt)
        self.after_order()

    @on(Welcome.WayOut)
    async def _follow_way_out(self, event: Welcome.WayOut) -> None:
        await self.run_action(event.action)

    # ---- actions ----------------------------------------------------------------------------

    def action_stop(self) -> None:
        if self.editor.end():
            return
        if self._abilities.is_at_work:
            self.feed.note(StopAsked())
            self.session.stop()
        else:
            self.outbox.return_to_prompt()
        self.after_order()

    def action_regenerate(self, seed: str = "") -> None:
        if self.state.phase == "failed":
            self._models.load_again()
        else:
            self._branches.regenerate(seed)

    @on(Transcript.Pointed)
    def _look_elsewhere(self, event: Transcript.Pointed) -> None:
        self._alternatives.look_away()
        if event.is_clicked and self._abilities.allows("alternatives"):
            self.call_later(self.action_alternatives)  # after the facts of the token

    def action_alternatives(self) -> None:
        inspector, reply = self.query_one(Inspector), self.transcript.pointed_message
        if inspector.facts is None or not isinstance(reply, Reply):
            return
        if self.state.phase == "busy":
            self.notify("the model is busy: Esc stops it, then try again", timeout=4)
        elif inspector.chosen is not None:
            self._branch_from(inspector.chosen)
        else:
            inspector.ask()
            self._alternatives.ask(reply, inspector.facts)
            self.after_order()

    def action_pick(self, step: Step) -> None:
        if not self.query_one(Inspector).pick(step):
            self.transcript.scroll_relative(y=step, animate=False)

    @on(Inspector.Chosen)
    def _follow_chosen(self) -> None:
        self.action_alternatives()

    def _branch_from(self, other: Alternative) -> None:
        if self._alternatives.branch(other.token):
            self.query_one(Inspector).ask()
            self.transcript.follow()
            self.after_order()

    def _verify(self) -> None:
        self.feed.note(OrderGiven())
        self.session.prove()
        self.after_order()

    def _race(self, prompt: str = "") -> None:
        self.feed.note(OrderGiven())
        self.session.race(prompt)
        self.after_order()

    def _set_system(self, text: str) -> None:
        if not text:
            self.offer(f"/system {self.state.system}")
            return
        if text == "-":
            self.notify("the model's own system prompt, from the next reply on", timeout=3)
        self.session.set_system("" if text == "-" else text)
        self.transcript.follow()
        self.after_order()

    def action_edit(self) -> None:
        self.editor.begin()

    def action_fork(self) -> None:
        self._branches.fork()

    def action_version(self, step: int) -> None:
        self._branches.step(step)

    @on(VersionMark.Chosen)
    def _choose_version(self, event: VersionMark.Chosen) -> None:
        self._branches.step_at(event.message, event.step)

    def action_new_chat(self) -> None:
        self._chats.begin_new()

    def action_model(self) -> None:
        self._models.choose_model()

    # ---- other screens ----------------------------------------------------------------------

    def action_chats(self, words: str = "") -> None:
        chats = self._chats
        self._navigation.choose_chat(
            self.storage.store, words, chats.follow_choice, chats.leave_deleted
        )

    def action_replay(self) -> None:
        self._navigation.replay()

    def _pick_models(self, part: Part) -> bool:
        return self._navigation.choose_model(part, self._models.load)

    def _ask_for_way(self, ways: Sequence[Way], context_length: int) -> None:
        self._navigation.choose_way(ways, context_length, self._overflow.follow_answer)
