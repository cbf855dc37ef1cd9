"""The chat: a conversation with a prompt, kept among others."""

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from mlxspec.errors import TraceError
from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished, GenerationStarted
from mlxspec_app.app_choices import choices_of
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.messages import Reply, said
from mlxspec_app.conversation.screen_events import MessageQueued, OrderGiven, QueuedSent
from mlxspec_app.conversation.session import SessionEvent
from mlxspec_app.playback.demo import read_demo
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.screens.choosing import ChoosingScreen
from mlxspec_app.screens.desk import DeskScreen
from mlxspec_app.screens.help import Key
from mlxspec_app.screens.live_replay import DemoScreen, LiveReplayScreen
from mlxspec_app.settings.keys import CHAT, PROMPT_KEYS, TRANSCRIPT, key_list
from mlxspec_app.settings.keys_chats import HISTORY, LIST
from mlxspec_app.text.mentions import MentionError, with_files
from mlxspec_app.widgets.chat.command_hints import CommandHints
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.welcome import Welcome


class ChatScreen(ChoosingScreen, DeskScreen):
    """Talk to a model. What is typed while it cannot listen waits in a queue."""

    BINDINGS: ClassVar[list[BindingType]] = list(CHAT)
    AUTO_FOCUS = "Prompt"
    FOLLOW_KEYS = "Ctrl+End or /follow"

    _was_loading = True

    def on_mount(self) -> None:
        self.query_one(Transcript).can_focus = True

    def begin(self) -> None:
        self.call_after_refresh(super().begin)  # loading takes the processor: paint a frame first

    def compose_controls(self) -> ComposeResult:
        yield CommandHints()
        yield Prompt()

    def active_keys(self) -> list[Key]:
        keys = key_list((*CHAT, *TRANSCRIPT, *HISTORY, *LIST), choices_of(self.app).keys)
        return [Key(*row) for row in (*PROMPT_KEYS, *keys)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_stuck = self.state.phase == "failed" and self.can_choose
        if action == "stop":
            is_at_work = self.state.phase == "busy" or self.state.loading is not None
            return is_at_work or bool(self.state.queue) or self.is_editing
        if action == "replay":
            return self.state.reply is not None or self.state.phase == "failed"
        if action in ("model", "draft"):
            return self.can_choose
        if action == "regenerate" and is_stuck:
            return True
        if action == "verify":
            return self.state.phase == "ready" and self.state.reply is not None
        if action == "regenerate":
            return self.state.phase == "ready" and bool(said(self.state.messages))
        if action in ("new_chat", "edit"):
            return not self.state.is_empty
        if action == "fork":
            return not self.state.is_empty and self.store is not None
        return action != "version" or bool(self.standing.versions)

    def take_in(self, event: Event | SessionEvent) -> None:
        super().take_in(event)
        if isinstance(event, GenerationStarted):
            self.frame_budget.limit(is_shared=bool(event.blas))
        elif isinstance(event, GenerationFinished | GenerationFailed):
            self.frame_budget.limit(is_shared=False)

    def on_phase_changed(self) -> None:
        super().on_phase_changed()
        was_loading, self._was_loading = self._was_loading, self.state.phase == "loading"
        if self.state.phase != "ready" or not self.state.queue:
            return
        reply = self.state.reply
        is_broken = reply is not None and (reply.reason == "cancelled" or bool(reply.error))
        if self.state.load_failure is not None or (is_broken and not was_loading):
            self.unqueue()
        else:
            text = self.state.queue[0]
            apply(self.state, QueuedSent())
            self._say(text)

    def selected_text(self) -> str:
        return super().selected_text() or self.query_one(Prompt).selected_text

    def offer(self, line: str) -> None:
        prompt = self.query_one(Prompt)
        prompt.text = line
        prompt.move_cursor(prompt.document.end)
        prompt.focus()

    @on(Prompt.Changed)
    def _hint(self, event: Prompt.Changed) -> None:
        self.query_one(CommandHints).show(event.text_area.text)

    @on(Prompt.Completing)
    def _complete(self) -> None:
        best = self.query_one(CommandHints).best
        if best:
            self.offer(best)
        else:
            self.focus_next()

    @on(Prompt.Submitted)
    def _submit(self, event: Prompt.Submitted) -> None:
        if self.send_edit(event.text):
            self.after_order()
            return
        if self.enter(event.text):
            return
        try:
            text = with_files(event.text, Path.cwd())
        except MentionError as error:
            self.notify(str(error), severity="warning", timeout=6)
            self.query_one(Prompt).restore(event.text)
            return
        if self.state.phase == "ready":
            self._say(text)
        else:
            apply(self.state, MessageQueued(text))
        self.after_order()

    @on(Welcome.Chosen)
    def _choose(self, event: Welcome.Chosen) -> None:
        self.query_one(Prompt).focus()
        if self.state.phase == "ready":
            self._say(event.prompt)
        self.after_order()

    @on(Welcome.WayOut)
    async def _take_way_out(self, event: Welcome.WayOut) -> None:
        await self.run_action(event.action)

    def action_stop(self) -> None:
        if self.end_edit():
            return
        if self.state.phase == "busy" or self.state.loading is not None:
            self.session.stop()
        else:
            self.unqueue()
        self.after_order()

    def action_regenerate(self, seed: str = "") -> None:
        if self.state.phase == "failed":
            self.load_again()
        else:
            super().action_regenerate(seed)

    def action_verify(self) -> None:
        apply(self.state, OrderGiven())
        self.session.prove()
        self.after_order()

    def action_adjust(self, name: str, value: str) -> None:
        if not value:
            now = self.session.adjustable().get(name, "not known")
            self.notify(f"{name} is {now}; /settings shows all", timeout=4)
            return
        try:
            self.session.adjust(name, value)
        except ValueError as error:
            self.notify(str(error), severity="warning", timeout=4)
        else:
            self.notify(f"{name} is {value} from the next reply on", timeout=2)

    def action_system(self, text: str) -> None:
        if not text:
            self.offer(f"/system {self.state.system}")
            return
        self.session.set_system("" if text == "-" else text)
        self.query_one(Transcript).follow()
        self.after_order()

    def action_replay(self) -> None:
        def num_rounds() -> int:
            return sum(len(m.rounds) for m in self.state.messages if isinstance(m, Reply))

        if self.state.reply is not None:
            self.app.push_screen(LiveReplayScreen(events_of(self.state), num_rounds))
            return
        try:
            self.app.push_screen(DemoScreen(read_demo()))
        except TraceError as error:
            self.notify(str(error), severity="warning", timeout=4)

    def _say(self, text: str) -> None:
        apply(self.state, OrderGiven())  # until the session says so, no second message goes out
        self.session.send(text)
        self.query_one(Transcript).follow()
