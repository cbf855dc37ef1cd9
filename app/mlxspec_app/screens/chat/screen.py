"""The chat screen: a conversation with a prompt, stored among others.

The screen composes widgets and the classes of this folder. It routes each key, command and widget
message to the class that it concerns, and the events of the session to all that listen.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, getters, on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import BindingType
from textual.widgets import Static

from mlxspec.errors import TraceError
from mlxspec_app.conversation.events import AnyEvent, OrderRefused, RaceFinished, RaceProgress
from mlxspec_app.conversation.messages import Hit, Reply, find_words
from mlxspec_app.conversation.orders import Prove, Resume, SetSystem, Stop
from mlxspec_app.conversation.orders import Race as RunRace
from mlxspec_app.conversation.tokens import Step
from mlxspec_app.playback.demo import read_bundled
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.race import Race
from mlxspec_app.screens.chat.alternatives import Alternatives
from mlxspec_app.screens.chat.better_model import BetterModel
from mlxspec_app.screens.chat.chats import Chats
from mlxspec_app.screens.chat.context_full import ContextOverflow
from mlxspec_app.screens.chat.leaving import Leaving
from mlxspec_app.screens.chat.next_reply import NextReply
from mlxspec_app.screens.chat.outbox import Outbox
from mlxspec_app.screens.chat.possible import is_at_work, is_possible
from mlxspec_app.screens.conversation.exporting import export
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.screens.replay import DemoScreen, LiveReplayScreen
from mlxspec_app.sessions.session import Session
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.keys.tables import CHAT, FIND, HISTORY, LIST, PROMPT_KEYS, TRANSCRIPT
from mlxspec_app.text.mentions import MentionError, with_files
from mlxspec_app.text.safe_text import safe_text
from mlxspec_app.user.editor import EditorError, edit_text
from mlxspec_app.user_data import UserData
from mlxspec_app.widgets.chat.command_hints import CommandHints
from mlxspec_app.widgets.chat.find_bar import FindBar
from mlxspec_app.widgets.chat.inspector import Inspector
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.welcome import Welcome

if TYPE_CHECKING:
    from mlxspec_app.screens.race import LiveRaceScreen


class ChatScreen(ConversationScreen):
    """A chat with a model. Messages typed while the model is busy wait in a queue."""

    BINDINGS: ClassVar[list[BindingType]] = list(CHAT)
    KEYS = (*CHAT, *FIND, *TRANSCRIPT, *HISTORY, *LIST)
    AUTO_FOCUS = "Prompt"
    FOLLOW_KEYS = "Ctrl+End or /follow"

    prompt = getters.query_one(Prompt)

    def __init__(
        self,
        session: Session,
        user_data: UserData | None = None,
        *,
        introduces: bool = False,
        continues: bool = False,
    ) -> None:
        """Make a screen for a session that has not started; see `run.run_chat`."""
        super().__init__(session)
        self.user_data, self._introduces, self._continues = user_data, introduces, continues
        unsent = user_data.paths.unsent if user_data is not None else None
        self.outbox = Outbox(self.feed, self)
        self.chats = Chats(self.feed, self, self.outbox, user_data)
        self._next_reply = NextReply(self.feed, self, user_data)
        self._better = BetterModel(self.feed, self, user_data, self._next_reply.load)
        self._overflow = ContextOverflow(self.feed, self)
        self._alternatives = Alternatives(self.feed, self)
        self._race: LiveRaceScreen | None = None
        self._leaving = Leaving(self.feed, self, unsent, self._stop)
        self.action_edit = self.outbox.begin_edit
        self.action_fork = self.chats.fork
        self.action_version = self.chats.step
        self.action_version_of = self.chats.step_at
        self.action_new_chat = self.chats.begin_new
        self.action_rename = self.chats.rename
        self.action_chats = self.chats.choose
        self.action_regenerate = self._next_reply.regenerate
        self.action_adjust = self._next_reply.adjust
        self.action_model = self._next_reply.choose_model
        self.action_draft = self._next_reply.choose_drafter
        self.action_fetch = self._better.fetch
        self.feed.listen(
            self._show_race,
            self._overflow.handle,
            self.chats.handle,
            self.outbox.handle,
            self.pacer.handle,
            self._alternatives.handle,
        )

    @property
    def mode(self) -> str:
        """A word for the footer while letters are keys, else ""."""
        return "READING" if self.transcript.has_focus else ""

    def compose_controls(self) -> ComposeResult:
        hints = CommandHints()
        yield Static(id="better-model")
        yield FindBar(lambda words: find_words(self.state.messages, words), self._show_hit)
        yield hints
        yield Prompt(hints)

    def active_keys(self) -> list[tuple[str, str]]:
        return [*PROMPT_KEYS, *super().active_keys()]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop" and (self.outbox.is_editing or self._better.fetching):
            return True
        if action == "version":
            return bool(self.chats.standing.versions)
        if action == "fork" and self.chats.store is None:
            return False
        return is_possible(action, self.state)

    # ---- time -------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self.transcript.can_focus = True
        for notice in self.app.notices:
            self.session.notify(notice)
        self._overflow.follow_settings(Settings(), self.app.settings)
        self._leaving.begin()

    def on_unmount(self) -> None:
        self._leaving.end()

    def begin(self) -> None:
        self.call_after_refresh(self._begin)  # loading keeps the CPU busy: draw a frame first

    def _begin(self) -> None:
        user_data = self.user_data
        if user_data is not None and user_data.stores_chats and user_data.store is None:
            user_data.store_chats_of(self.session, lambda: self.call_later(self.pacer.wake))
        self.chats.begin(continues=self._continues)
        if self.chats.store is not None:
            self.run_worker(self._remember_sent())
        if self._introduces and user_data is not None and user_data.is_new:
            from mlxspec_app.screens.first_run import FirstRunScreen  # late, as only it needs it

            self.app.push_screen(FirstRunScreen(self.state))

    async def _remember_sent(self) -> None:
        sent = await self.chats.query_store(lambda it: it.writer.recent_turns(), is_quiet=True)
        for prompt in self.query(Prompt):
            prompt.remember(sent or [])

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        super().follow_settings(before, settings)
        self._overflow.follow_settings(before, settings)
        self._next_reply.follow_settings(before, settings)

    def update_panels(self, charts: bool = True) -> None:
        super().update_panels(charts)
        if self.is_current:
            self._better.show()

    def on_phase_changed(self) -> None:
        if self.state.phase == "ready":
            self._better.seek()
        self.chats.follow_phase()
        self.outbox.follow_phase()

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
            self._next_reply.find_models(lambda names: hints.offer("model", names))

    @on(Prompt.Submitted)
    def _submit(self, event: Prompt.Submitted) -> None:
        is_answer = event.text in ("", "f") and not self.outbox.is_editing
        if (is_answer and self._better.agree()) or not event.text:
            return
        if self.outbox.send_edited(event.text) or self.enter(event.text):
            return
        try:
            text = with_files(event.text, Path.cwd())
        except MentionError as error:
            self.notify(str(error), severity="warning", timeout=6)
            self.prompt.restore(event.text)
            return
        self.outbox.submit(text)

    @on(Welcome.Chosen)
    def _choose(self, event: Welcome.Chosen) -> None:
        self.prompt.focus()
        if self.state.phase == "ready":
            self.outbox.submit(event.prompt)

    # ---- replies ----------------------------------------------------------------------------

    def action_stop(self) -> None:
        self._stop()

    def _stop(self) -> bool:
        """End an edit, else a reply or load, else the queue, else a download; return if any was."""
        if self.outbox.end_edit():
            return True
        if not is_possible("stop", self.state):
            return self._better.leave()
        if is_at_work(self.state):
            self.feed.send(Stop())
        else:
            self.outbox.return_to_prompt()
            self.show_now()
        return True

    def action_continue(self) -> None:
        """Go on with the last reply if it was cut, else with the previous chat."""
        if is_possible("resume", self.state):
            self.feed.send(Resume())
        else:
            self.chats.open_last()

    def action_verify(self) -> None:
        self.feed.send(Prove())

    def action_race(self, typed: str = "") -> None:
        """Race; a number before the prompt, if any, is that of the tokens."""
        from mlxspec_app.screens.race import LiveRaceScreen  # late: it delays the first frame

        word, _, rest = typed.partition(" ")
        is_number = word.isdecimal() and int(word) > 0
        order = RunRace(rest.strip(), int(word)) if is_number else RunRace(typed)
        race = Race.live(order.max_tokens, time.monotonic)
        self._race = LiveRaceScreen(race, self._stop)
        self.feed.send(order)

    def _show_race(self, event: AnyEvent) -> None:
        """Show a race from its first event on."""
        screen = self._race
        if screen is None:
            return
        if isinstance(event, RaceProgress):
            if not screen.race.tracks[0].events:
                self.app.push_screen(screen)
            screen.race.tracks[event.run].record(event.event)
            self.pacer.handle(event.event)
        elif isinstance(event, RaceFinished | OrderRefused):
            if screen.race.tracks[0].events:
                screen.finish()
            self._race = None

    def action_replay(self) -> None:
        """Replay the conversation, or a recording of the app if there is no reply yet."""

        def num_rounds() -> int:
            return sum(len(m.rounds) for m in self.state.messages if isinstance(m, Reply))

        if self.state.reply is not None:
            self.app.push_screen(LiveReplayScreen(events_of(self.state), num_rounds))
            return
        try:
            self.app.push_screen(DemoScreen(read_bundled("chat")))
        except TraceError as error:
            self.notify(str(error), severity="warning", timeout=4)

    def action_system(self, text: str) -> None:
        if not text:
            self.offer(f"/system {self.state.system}")
            return
        if text == "-":
            self.notify("the model's own system prompt, from the next reply on", timeout=3)
        self.feed.send(SetSystem("" if text == "-" else text))

    # ---- alternatives to a token ------------------------------------------------------------

    @on(Transcript.Pointed)
    def _look_elsewhere(self, event: Transcript.Pointed) -> None:
        self._alternatives.look_away()
        if event.is_clicked and is_possible("alternatives", self.state):
            self.call_later(self.action_alternatives)  # after the facts of the token

    def action_alternatives(self) -> None:
        self._alternatives.act()

    def action_pick(self, step: Step) -> None:
        if not self.query_one(Inspector).pick(step):
            self.transcript.scroll_relative(y=step, animate=False)

    def action_export(self, typed: str) -> None:
        export(self, self.state, typed, self.chats.standing.title)
