"""The base of the screens with a conversation: one session, its state, and the views of it.

A frame drains the session, folds its events into the state and appends new text to the transcript.
A few times a second it also redraws the panels. Nothing here waits for the session.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from mlxspec_app.commands import COMMANDS, Command, CommandError, CommandProvider, parse
from mlxspec_app.conversation import views
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.conversation.orders import Order, SetSystem, Writing
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.conversation.views import XRAY, Ink, View, ink_named
from mlxspec_app.frames import FramePacer, frames_per_s
from mlxspec_app.screens.conversation.exporting import export
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.panels import Panels
from mlxspec_app.screens.dialogs import ContextScreen, explain
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.screens.steady import SteadyScreen
from mlxspec_app.sessions.session import Session
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.keys.choices import key_list
from mlxspec_app.text.clipboard import copy_text
from mlxspec_app.text.markdown import code_block_at, code_blocks
from mlxspec_app.widgets.chat.inspector import Inspector
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.chat.notice_rows import NoticeRows
from mlxspec_app.widgets.chat.status_bar import StatusBar
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.welcome import EXAMPLES, TYPE, Example, Welcome
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.legend_strip import LegendStrip
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.stats_panel import StatsPanel


class ConversationScreen(SteadyScreen[None]):
    """Shows a session. Subclasses add the widgets below the draft lane, keys and actions."""

    COMMANDS = {CommandProvider}  # noqa: RUF012
    NOTE: ClassVar[str] = ""  # a word or two in the status bar, on a screen that is no live chat
    FOLLOW_KEYS: ClassVar[str] = "Ctrl+End or G"  # they scroll to the newest text
    EXAMPLES: ClassVar[Sequence[Example]] = EXAMPLES  # on the first page
    INVITATION: ClassVar[str] = TYPE
    FIRST_VIEW: ClassVar[View | None] = None  # of a screen that stores no choice
    KEYS: ClassVar[tuple[Binding, ...]] = ()  # on the help page

    transcript = getters.query_one(Transcript)

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.feed = Feed(session, self.on_order)
        self.pacer = FramePacer(self, lambda: self.session.busy, self.tick, self.update_panels)
        self.view, self.ink = views.CALM, views.INKS[0]
        self.panels = Panels(self, self.FOLLOW_KEYS)

    @property
    def session(self) -> Session:
        return self.feed.session

    @property
    def state(self) -> ChatState:
        return self.feed.state

    # ---- widgets ----------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield StatusBar(self.NOTE)
        with Horizontal(id="body"):
            with Vertical(id="conversation"):
                yield Welcome(self.EXAMPLES, self.INVITATION)
                yield Transcript(id="transcript")
                yield Static(id="pill")
            yield StatsPanel()
        yield Inspector()
        yield TreePanel()
        yield LegendStrip()
        yield DraftLane()
        yield NoticeRows(can_adjust=hasattr(self, "action_adjust"))
        yield from self.compose_controls()
        yield KeyFooter()

    def compose_controls(self) -> ComposeResult:
        yield from ()

    def active_keys(self) -> list[tuple[str, str]]:
        return key_list(self.KEYS, self.app.keys)

    # ---- time -------------------------------------------------------------------------------

    def on_mount(self) -> None:
        settings = self.app.settings
        view = self.FIRST_VIEW or views.view_named(settings.view)
        self.use_view(view, ink_named(settings.ink))
        self.begin()
        self.pacer.draw_at(frames_per_s(settings))
        self.pacer.begin_panels(moves=self.app.animation_level != "none")
        self.update_views()

    def begin(self) -> None:
        """Start the session; called once, when the widgets exist."""
        self.session.start()

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        if settings.ink != before.ink:
            self.use_view(self.view, ink_named(settings.ink))
        if settings.view != before.view:
            self.use_view(views.view_named(settings.view), self.ink)
        if settings.frame_rate != before.frame_rate:
            self.pacer.draw_at(frames_per_s(settings))

    def tick(self) -> None:
        changes = self.feed.update()
        if changes.has_events:
            self.transcript.sync(self.state.messages)
        if changes.has_new_phase or changes.has_new_page:
            self.refresh_bindings()
            self.update_views()
        if changes.is_over:
            self.pacer.rest()
        if changes.has_new_phase:  # last, because it may send an order, which draws again
            self.on_phase_changed()

    def on_phase_changed(self) -> None:
        """React to a new phase of the session; a hook for subclasses."""

    def on_order(self, order: Order) -> None:
        """Show at once what an order changes."""
        if isinstance(order, Writing | SetSystem):
            self.transcript.follow()
        self.show_now()

    def show_now(self) -> None:
        self.pacer.wake()
        self.tick()
        self.update_panels()
        self.refresh_bindings()

    def update_views(self) -> None:
        self.panels.show_welcome(self.state)
        self.transcript.sync(self.state.messages)
        self.update_panels()

    def update_panels(self, charts: bool = True) -> None:
        """Redraw the panels around the transcript; without `charts`, only the cheap ones."""
        if self.is_current:
            self.panels.show(self.state, charts=charts)

    def run_beside(self, work: Any, **options: Any) -> None:
        """Call `work` for a coroutine and run it, unless the worker is cancelled before that.

        The types of Textual allow no function that makes a coroutine.
        """
        self.run_worker(work, **options)

    # ---- what the user sees -----------------------------------------------------------------

    def on_resize(self) -> None:
        self.panels.fit()
        self.call_after_refresh(self.update_panels)

    @on(Transcript.Pointed)
    def _inspect(self, event: Transcript.Pointed) -> None:
        self.query_one(Inspector).show(event.facts)
        self.panels.look_at(event.reply, event.round)
        self.update_panels()

    def use_view(self, view: View, ink: Ink) -> None:
        self.view, self.ink = view, ink
        self.transcript.set_view(view, ink)
        self.panels.set_view(view, ink)
        self.call_after_refresh(self.update_panels)

    def action_view(self, name: str = "") -> None:
        """Use the named view, else the other one, and store the choice."""
        self.use_view(views.view_named(name) if name else views.other_view(self.view), self.ink)
        if self.FIRST_VIEW is None:
            self.app.change("view", self.view.name)

    def action_ink(self, name: str = "") -> None:
        """Show the X-ray in the named ink; without a name, switch a shown X-ray to the next ink."""
        is_next = not name and self.view is XRAY
        ink = views.next_ink(self.ink) if is_next else ink_named(name or self.ink.name)
        self.use_view(XRAY, ink)

    def action_theme(self, name: str = "") -> None:
        self.app.change_theme(name)

    def action_toggle_stats(self) -> None:
        self.panels.toggle_stats()
        self.call_after_refresh(self.update_panels)

    def action_toggle_tree(self, view: str = "") -> None:
        self.query_one(TreePanel).toggle(view)
        self.update_panels()

    def action_scroll(self, where: Literal["start", "up", "down", "end"]) -> None:
        if where == "start":
            self.transcript.show_start()
        else:
            self.transcript.turn(where)
        self.call_after_refresh(self.update_panels)

    # ---- messages ---------------------------------------------------------------------------

    @property
    def _message(self) -> Message | None:
        """The message under the cursor, else the last reply."""
        return self.transcript.pointed_message or self.state.reply

    def action_copy_message(self) -> None:
        message = self._message
        self.copy(message.text if message is not None else "", "there is no reply to copy yet")

    def action_copy_code(self) -> None:
        """Copy the code block under the cursor, else the last one of any reply."""
        pointed = self.transcript.pointed_message
        if pointed is not None:
            block = code_block_at(pointed.text, self.transcript.pointed_character)
            self.copy(block, "this message has no code block")
            return
        replies = (m.text for m in reversed(self.state.messages) if isinstance(m, Reply))
        blocks = next(filter(None, map(code_blocks, replies)), [""])
        self.copy(blocks[-1], "no reply has a code block yet")

    def action_toggle_reasoning(self) -> None:
        message = self._message
        if not isinstance(message, Reply) or not self.transcript.toggle_reasoning(message):
            self.notify("this reply has no reasoning to show", timeout=3)

    def action_toggle_markdown(self) -> None:
        """Switch the reply between rendered Markdown and its exact text."""
        message = self._message
        if not isinstance(message, Reply) or not message.text:
            self.notify("there is no reply to render here", timeout=3)
        else:
            self.transcript.toggle_rendered(message)

    def action_export(self, typed: str) -> None:
        export(self, self.state, typed)

    def action_copy_or_quit(self) -> None:
        text = self.selected_text()
        if text:
            self.copy(text, "")
        else:
            self.interrupt()

    def interrupt(self) -> None:  # Ctrl+C without a selection
        self.app.exit()

    def selected_text(self) -> str:
        return self.get_selected_text() or ""

    def copy(self, text: str, if_empty: str) -> None:
        if not text:
            self.notify(if_empty, timeout=3)
            return
        copied = copy_text(self.app, text)
        self.notify(
            f"{len(text)} characters, {copied.route}", title=copied.title, timeout=copied.seconds
        )

    # ---- commands ---------------------------------------------------------------------------

    def enter(self, line: str, *, is_complete: bool = True) -> bool:
        """Run a line if it is a command; return whether it was one.

        With `is_complete` false, the line goes into the prompt to be completed.
        """
        if not is_complete:
            self.offer(f"{line} ")
            return True
        try:
            found = parse(line)
            if found is not None:
                self._run(*found)
        except CommandError as error:
            self.refuse(line, str(error))
            return True
        return found is not None

    def _run(self, command: Command, argument: str) -> None:
        action: Any = getattr(self, f"action_{command.action}", None)
        if action is None or not self.check_action(command.action, ()):
            self.notify(f"/{command.name} cannot be used here", timeout=3)
        else:
            action(*command.parameters, *([argument] if command.argument else []))

    def offer(self, line: str) -> None:
        """Refuse a line that the user would have to complete: this screen has no prompt."""
        self.notify(f"{line.strip()} cannot be typed here", timeout=3)

    def refuse(self, line: str, reason: str) -> None:
        """Show why a command is refused; a screen with a prompt also restores the line."""
        self.notify(reason, severity="warning", timeout=4)

    def action_help(self) -> None:
        commands = [command for command in COMMANDS if hasattr(self, f"action_{command.action}")]
        self.app.push_screen(HelpScreen(self.active_keys(), commands))

    def action_explain(self) -> None:
        explain(self, self.action_help)

    def action_context(self) -> None:
        self.app.push_screen(ContextScreen(self.state))

    def action_settings(self) -> None:
        from mlxspec_app.screens.settings import SettingsScreen  # late: it delays the first frame

        self.app.push_screen(SettingsScreen(self.session.settings))

    def action_quit(self) -> None:
        self.app.exit()
