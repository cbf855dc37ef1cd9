"""The base of the screens with a conversation: one session, its state, and the views of it.

A frame drains the session, folds its events into the state and appends new text to the transcript.
A few times a second it also redraws the panels. Nothing here waits for the session.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from mlxspec_app.app import MlxspecApp, choices_of
from mlxspec_app.controllers.commander import Commander
from mlxspec_app.controllers.exporting import Exporter
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.pacer import FramePacer
from mlxspec_app.controllers.reading import MessageReader
from mlxspec_app.controllers.view import ViewChoice
from mlxspec_app.conversation.inks import Ink, ink_named
from mlxspec_app.conversation.session import Session
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.conversation.views import View, view_named
from mlxspec_app.frames import frames_per_s
from mlxspec_app.palette import CommandProvider
from mlxspec_app.screens.context import ContextScreen
from mlxspec_app.screens.figures import explain
from mlxspec_app.screens.help import HelpScreen, Key
from mlxspec_app.screens.steady import SteadyScreen
from mlxspec_app.screens.surroundings import Surroundings
from mlxspec_app.settings.file import Settings
from mlxspec_app.text.clipboard import copy_text
from mlxspec_app.widgets.chat.inspector import Inspector
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.chat.notice_rows import NoticeRows
from mlxspec_app.widgets.chat.status_bar import StatusBar
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.welcome import EXAMPLES, TYPE, Example, Welcome
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.legend_strip import LegendStrip
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.figures.stats_panel import StatsPanel


class ConversationScreen(SteadyScreen[None]):
    """Shows a session. Subclasses add the widgets below the draft lane, keys and orders.

    `NOTE` is a word or two in the status bar, on a screen that is no live chat. `FOLLOW_KEYS` says
    which keys scroll to the newest text. `EXAMPLES` and `INVITATION` are on the first page. `TREE`
    and `LANE` are the views of the last round.
    """

    COMMANDS = {CommandProvider}  # noqa: RUF012
    NOTE: ClassVar[str] = ""
    FOLLOW_KEYS: ClassVar[str] = "Ctrl+End or G"
    EXAMPLES: ClassVar[Sequence[Example]] = EXAMPLES
    INVITATION: ClassVar[str] = TYPE
    TREE: ClassVar[type[TreePanel]] = TreePanel
    LANE: ClassVar[type[DraftLane]] = DraftLane

    def __init__(self, session: Session) -> None:
        """Make a screen for a session that has not started."""
        super().__init__()
        self.feed = Feed(session)
        self.pacer = FramePacer(self)
        self.views = ViewChoice(self._show_view, self._keep_view)
        self.reader = MessageReader(self.feed, self, self.copy)
        self.surroundings = Surroundings(self, self.FOLLOW_KEYS)

    @cached_property
    def commander(self) -> Commander:
        """Runs the commands of this screen; made late, because subclasses add orders."""
        return Commander(self, self.orders())

    def orders(self) -> dict[str, Callable[..., object]]:
        """Return the functions that commands can run here, by the name of their action."""
        return {
            "context": self._show_context,
            "copy_code": self.action_copy_code,
            "copy_message": self.action_copy_message,
            "export": Exporter(self.feed, self).export,
            "follow": partial(self.action_scroll, "end"),
            "help": self.action_help,
            "ink": self.views.choose_ink,
            "quit": self.action_quit,
            "read_back": partial(self.action_scroll, "up"),
            "read_on": partial(self.action_scroll, "down"),
            "settings": self.action_settings,
            "theme": lambda name: self.choices.change_theme(name),  # late: it needs the app
            "toggle_markdown": self.action_toggle_markdown,
            "toggle_reasoning": self.action_toggle_reasoning,
            "toggle_stats": self.action_toggle_stats,
            "toggle_tree": self.action_toggle_tree,
            "view": self.views.choose,
        }

    @property
    def session(self) -> Session:
        return self.feed.session

    @property
    def state(self) -> ChatState:
        return self.feed.state

    @property
    def choices(self) -> MlxspecApp:
        return choices_of(self.app)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

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
        yield self.TREE()
        yield LegendStrip()
        yield self.LANE()
        yield NoticeRows(can_adjust=self.commander.can("adjust"))
        yield from self.compose_controls()
        yield KeyFooter()

    def compose_controls(self) -> ComposeResult:
        """Yield the widgets below the draft lane."""
        yield from ()

    def active_keys(self) -> list[Key]:
        """Return the keys of the screen, for the help page."""
        return []

    # ---- time -------------------------------------------------------------------------------

    def on_mount(self) -> None:
        settings = self.choices.settings
        self.views.use(self.first_view(settings), ink_named(settings.ink))
        self.begin()
        self.pacer.draw_at(frames_per_s(settings))
        self.pacer.begin_panels(moves=self.app.animation_level != "none")
        self.update_views()

    def begin(self) -> None:
        """Start the session; called once, when the widgets exist."""
        self.session.start()

    def first_view(self, settings: Settings) -> View:
        """Return the view to start with."""
        return view_named(settings.view)

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Apply the changed settings."""
        if settings.ink != before.ink:
            self.views.use(self.views.view, ink_named(settings.ink))
        if settings.view != before.view:
            self.views.use(view_named(settings.view), self.views.ink)
        if settings.frame_rate != before.frame_rate:
            self.pacer.draw_at(frames_per_s(settings))

    @property
    def is_at_work(self) -> bool:
        return self.session.busy

    def tick(self) -> None:
        """Apply the events since the last frame and show them."""
        changes = self.feed.update()
        if changes.has_events:
            self.transcript.sync(self.state.messages)
        if changes.has_new_phase:
            self.on_phase_changed()
        if changes.has_new_phase or changes.has_new_page:
            self.refresh_bindings()
            self.update_views()
        if changes.is_over:
            self.pacer.rest()

    def run_beside(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        group: str = "default",
        exit_on_error: bool = True,
        exclusive: bool = False,
    ) -> None:
        """Run a coroutine in the background, as `run_worker` does."""
        begin: Callable[[], Any] = work
        self.run_worker(begin, group=group, exit_on_error=exit_on_error, exclusive=exclusive)

    def on_phase_changed(self) -> None:
        """React to a new phase of the session; a hook for subclasses."""

    def show_now(self) -> None:
        """Show the effect of an order at once."""
        self.pacer.wake()
        self.tick()
        self.update_panels()

    def update_views(self) -> None:
        """Show the state in all widgets at once."""
        self.surroundings.show_welcome(self.state)
        self.transcript.sync(self.state.messages)
        self.update_panels()

    def update_panels(self) -> None:
        """Redraw the panels around the transcript."""
        if self.is_current:
            self.surroundings.show(self.state)

    def update_rows(self) -> None:
        """Redraw only the panels that are cheap."""
        if self.is_current:
            self.surroundings.show_rows(self.state)

    # ---- what the user sees -----------------------------------------------------------------

    def on_resize(self) -> None:
        self.surroundings.fit()
        self.call_after_refresh(self.update_panels)

    @on(Transcript.Pointed)
    def _inspect(self, event: Transcript.Pointed) -> None:
        self.query_one(Inspector).show(event.facts)
        self.surroundings.look_at(event.reply, event.round)
        self.update_panels()

    def action_next_view(self) -> None:
        self.views.choose()

    @on(LegendStrip.Clicked)
    def action_next_ink(self) -> None:
        self.views.choose_ink()

    def _show_view(self, view: View, ink: Ink) -> None:
        self.transcript.set_view(view, ink)
        self.surroundings.set_view(view, ink)
        self.call_after_refresh(self.update_panels)

    def _keep_view(self, name: str, value: str) -> None:
        self.choices.change(name, value)

    def action_toggle_stats(self) -> None:
        self.surroundings.toggle_stats()
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

    # ---- copying ----------------------------------------------------------------------------

    def action_copy_message(self) -> None:
        self.reader.copy_message()

    def action_copy_code(self) -> None:
        self.reader.copy_code()

    def action_toggle_reasoning(self) -> None:
        self.reader.toggle_reasoning()

    def action_toggle_markdown(self) -> None:
        self.reader.toggle_markdown()

    def action_copy_or_quit(self) -> None:
        text = self.selected_text()
        if text:
            self.copy(text, "")
        else:
            self.interrupt()

    def interrupt(self) -> None:
        """Do what Ctrl+C does without a selection."""
        self.app.exit()

    def selected_text(self) -> str:
        return self.get_selected_text() or ""

    def copy(self, text: str, if_empty: str) -> None:
        """Copy text and show how it was copied; `if_empty` is the notice if there is none."""
        if not text:
            self.notify(if_empty, timeout=3)
            return
        copied = copy_text(self.app, text)
        self.notify(
            f"{len(text)} characters, {copied.route}", title=copied.title, timeout=copied.seconds
        )

    # ---- commands ---------------------------------------------------------------------------

    def enter(self, line: str, *, is_complete: bool = True) -> bool:
        """Run a line if it is a command; return whether it was one."""
        return self.commander.enter(line, is_complete=is_complete)

    def offer(self, line: str) -> None:
        """Refuse a line that the user would have to complete: this screen has no prompt."""
        self.notify(f"{line.strip()} cannot be typed here", timeout=3)

    def refuse(self, line: str, reason: str) -> None:
        """Show why a command is refused; a screen with a prompt also restores the line."""
        self.notify(reason, severity="warning", timeout=4)

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen(self.active_keys(), self.commander.commands))

    def action_explain(self) -> None:
        explain(self, self.action_help)

    def _show_context(self) -> None:
        self.app.push_screen(ContextScreen(self.state))

    def action_settings(self) -> None:
        from mlxspec_app.screens.settings import SettingsScreen  # late: it delays the first frame

        self.app.push_screen(SettingsScreen(self.session.adjustable(), self.session.origins()))

    def action_quit(self) -> None:
        self.app.exit()
