"""The first run: the machine, the model and a recorded race, on three cards that can be skipped.

The model loads meanwhile; its progress is below the cards.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import ContentSwitcher, Static

from mlxspec_app.conversation.state import ChatState
from mlxspec_app.picker.introduction import Introduction
from mlxspec_app.screens.steady import SteadyModal
from mlxspec_app.settings.keys.choices import shown_keys
from mlxspec_app.settings.keys.tables import CHAT
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.chat.welcome import loading_rows
from mlxspec_app.widgets.playback.recorded_race import RecordedRace

_CARDS = {  # and their titles
    "machine": "This machine",
    "model": "The model that will answer",
    "race": "The same reply, with guesses and without",
}
_MUTED = "$spec-muted"
_NEWS_PER_S = 5
_KEY_CELLS = 8
_KEYS = (  # a binding id or a text to type, and its effect
    ("Enter", "send a message"),
    ("view.ink", "the X-ray: who wrote each word, and how sure"),
    ("/race", "a race like this one, with your own prompt"),
    ("chat.model", "other models"),
    ("app.help", "help: all keys, commands and colours"),
)


class FirstRunScreen(SteadyModal[None]):
    """Shown once, before the first chat."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,right,space", "turn(1)", "Next", priority=True),
        Binding("left", "turn(-1)", "Back", priority=True, key_display="←"),
        Binding("escape", "dismiss", "Skip"),
    ]
    DEFAULT_CSS = """
    FirstRunScreen {
        align: center middle;
        background: $background;
        & > VerticalScroll {
            width: 100%;
            max-width: 80;
            height: 1fr;
            padding: 1 2;
            scrollbar-size-vertical: 1;
        }
        &.-short > VerticalScroll { padding: 0 2; }
        & #card-title { height: auto; margin: 0 0 1 0; }
        & ContentSwitcher { height: auto; }
        & ContentSwitcher > Static { height: auto; }
        & #race, & #keys { height: auto; }
        & > #loading { width: 100%; max-width: 80; height: auto; padding: 0 2 1 2; }
    }
    """

    def __init__(self, find_facts: Callable[[], Introduction], state: ChatState) -> None:
        """Make the screen over a chat whose session loads its model.

        `find_facts` can be slow, so a thread calls it. `state` changes while the model loads.
        """
        super().__init__()
        self._find_facts = find_facts
        self._state = state

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="card-title")
            with ContentSwitcher(initial="machine"):
                yield Static("looking …", id="machine")
                yield Static("looking …", id="model")
                with Vertical(id="race"):
                    yield RecordedRace()
                    yield Static(_keys(self.app.keys), id="keys")
        yield Static(id="loading")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.run_worker(self._look, thread=True, exit_on_error=False)
        self.set_interval(1 / _NEWS_PER_S, self.tick)
        self._show_title()
        self.tick()

    def tick(self) -> None:
        """Show the progress of loading."""
        self.query_one("#loading", Static).update(_progress(self._state))

    def action_turn(self, step: int) -> None:
        cards, names = self.query_one(ContentSwitcher), list(_CARDS)
        index = names.index(cards.current or "machine") + step
        if index >= len(names):
            self.dismiss()
            return
        cards.current = names[max(0, index)]
        self._show_title()
        if cards.current == "race":
            self.query_one(RecordedRace).begin()

    def _show_title(self) -> None:
        current = self.query_one(ContentSwitcher).current or "machine"
        number = f"{list(_CARDS).index(current) + 1} of {len(_CARDS)}  "
        title = Content.assemble((number, _MUTED), (_CARDS[current], "$foreground bold"))
        self.query_one("#card-title", Static).update(title)

    def _look(self) -> None:
        facts = self._find_facts()
        if self.is_mounted:
            self.app.call_from_thread(self._show_facts, facts)

    def _show_facts(self, facts: Introduction) -> None:
        for card, lines in (("machine", facts.machine_lines()), ("model", facts.model_lines())):
            first, *rest = (safe_line(line) for line in lines)
            text = Content.assemble((first, "$foreground"), ("\n\n" + "\n".join(rest), _MUTED))
            # a query may find nothing: the user can close the cards before the facts come
            for widget in self.query(f"#{card}").results(Static):
                widget.update(text)


def _keys(chosen: Mapping[str, str]) -> Content:
    """Return the first keys to learn, as the user's key map has them."""
    bindings = {binding.id: binding for binding in CHAT}
    rows = []
    for name, meaning in _KEYS:
        binding = bindings.get(name)
        key = shown_keys(binding, chosen.get(name, "")) if binding is not None else name
        rows.append(Content.assemble((f"{key:<{_KEY_CELLS}}", "$foreground"), (meaning, _MUTED)))
    return Content("\n").join(rows)


def _progress(state: ChatState) -> Content:
    if state.phase == "loading":
        return loading_rows(state)
    if state.phase == "failed":
        return Content.styled(f"✗ {safe_line(state.error)}", "$spec-rejected")
    return Content.styled("the model is ready", "$spec-accepted")
