"""The chat: a conversation with a prompt, kept among others."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from mlxspec.errors import TraceError
from mlxspec_app.demo import read_demo
from mlxspec_app.keymap import CHAT, PROMPT_KEYS, TRANSCRIPT, key_list
from mlxspec_app.keymap_chats import HISTORY
from mlxspec_app.messages import Reply, said
from mlxspec_app.retell import events_of
from mlxspec_app.screens.branching import BranchingScreen
from mlxspec_app.screens.choosing import ChoosingScreen
from mlxspec_app.screens.help import Key
from mlxspec_app.screens.live_replay import DemoScreen, LiveReplayScreen
from mlxspec_app.widgets.command_hints import CommandHints
from mlxspec_app.widgets.prompt import Prompt
from mlxspec_app.widgets.transcript import Transcript
from mlxspec_app.widgets.welcome import Welcome


class ChatScreen(ChoosingScreen, BranchingScreen):
    """Talk to a model. What is typed while it cannot listen waits in a queue."""

    BINDINGS: ClassVar[list[BindingType]] = list(CHAT)
    AUTO_FOCUS = "Prompt"

    _was_loading = True

    def on_mount(self) -> None:
        self.query_one(Transcript).can_focus = True

    def begin(self) -> None:
        self.call_after_refresh(super().begin)  # loading takes the processor: paint a frame first

    def compose_controls(self) -> ComposeResult:
        yield CommandHints()
        yield Prompt()

    def active_keys(self) -> list[Key]:
        rows = (*PROMPT_KEYS, *key_list(CHAT), *key_list(TRANSCRIPT), *key_list(HISTORY))
        return [Key(*row) for row in rows]

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
            return bool(self.state.messages)
        if action == "fork":
            return bool(self.state.messages) and self.store is not None
        return action != "version" or bool(self.standing.versions)

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
            self._say(self.state.queue.pop(0))

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
        if self.state.phase == "ready":
            self._say(event.text)
        else:
            self.state.queue.append(event.text)
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
        self.state.phase = "busy"
        self.session.prove()
        self.after_order()

    def action_adjust(self, name: str, value: str) -> None:
        try:
            self.session.adjust(name, value)
        except ValueError as error:
            self.notify(str(error), severity="warning", timeout=4)
        else:
            self.notify(f"{name} is {value} from the next reply on", timeout=2)

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
        self.state.phase = "busy"  # until the session says so itself, no second message goes out
        self.session.send(text)
        self.query_one(Transcript).follow()
