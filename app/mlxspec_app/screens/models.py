"""The model picker: the models on the left, the drafters of the highlighted one on the right.

Threads list the models and drafters, because that reads disks; the screen stays responsive.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from textual import events, getters, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.worker import get_current_worker

from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_app.conversation.orders import MakeTable, Order, Stop
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.picker.catalogue import Catalogue, Fetching
from mlxspec_app.picker.model_rows import (
    drafter_facts,
    fetch_news,
    load_news,
    model_facts,
    table_news,
    trouble,
)
from mlxspec_app.picker.model_shelf import Shelf
from mlxspec_app.screens.steady import SteadyScreen
from mlxspec_app.settings.keys.tables import MODELS
from mlxspec_app.user_data import UserData
from mlxspec_app.widgets.chat.key_footer import KeyFooter

_UPDATES_PER_S = 5

T = TypeVar("T")


class ChoiceList(OptionList):
    """Rows of text with one of them highlighted."""

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = title

    def show(self, rows: Sequence[Content], highlighted: int | None) -> None:
        self.clear_options()
        self.add_options(rows)
        self.highlighted = highlighted

    def on_click(self, event: events.Click) -> None:
        """Highlight the clicked row first; choose it only if it already was highlighted."""
        clicked = event.style.meta.get("option")
        if clicked is not None and clicked != self.highlighted:
            self.highlighted = clicked
            event.prevent_default()


class ModelsScreen(SteadyScreen[ModelChoice | None]):
    """Asks which models to load; the result None keeps the present ones."""

    BINDINGS: ClassVar[list[BindingType]] = list(MODELS)
    AUTO_FOCUS = ""
    _models = getters.query_one("#models", ChoiceList)
    _drafters = getters.query_one("#drafters", ChoiceList)

    def __init__(
        self,
        user_data: UserData,
        catalogue: Catalogue,
        state: ChatState,
        send: Callable[[Order], object],
        *,
        begins_with: str = "models",
    ) -> None:
        """`send` takes orders; `begins_with` is the list with the focus: models or drafters."""
        super().__init__()
        self._user_data, self._catalogue = user_data, catalogue
        self._state, self._send, self._begins_with = state, send, begins_with
        self._was_fetching = False
        is_loaded = state.phase in ("ready", "busy")
        self._shelf = Shelf(state.choice or ModelChoice(), is_loaded, catalogue.memory_gb)

    @property
    def _model(self) -> ModelEntry | None:
        return self._shelf.model_at(self._models.highlighted)

    @property
    def _fetching(self) -> Fetching | None:
        """The download that is not over, or None."""
        fetching = self._user_data.fetching
        return fetching if fetching is not None and not fetching.is_over else None

    @property
    def _drafter(self) -> DrafterEntry | None:
        index = self._drafters.highlighted
        return self._shelf.drafter_at(self._model.source, index) if self._model else None

    def compose(self) -> ComposeResult:
        yield Static(id="news")
        yield Input(placeholder="a folder, a GGUF file or a hub id, such as org/name")
        with Horizontal():
            yield ChoiceList("models", id="models")
            yield ChoiceList("drafters", id="drafters")
        yield Static("looking for models …", id="facts")
        yield KeyFooter()

    def on_mount(self) -> None:
        self._models.border_subtitle = "Enter loads"
        self.query_one(f"#{self._begins_with}").focus()
        self.set_interval(1 / _UPDATES_PER_S, self._show_news)
        self._show_news()
        self._read_models()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "fetch":
            return self._model is not None and not self._model.is_here and self._fetching is None
        if action == "make_table":
            return self._state.phase in ("ready", "busy")
        return action != "stop" or bool(self._fetching or self._state.loading)

    @work(thread=True, group="models", exclusive=True)
    def _read_models(self) -> None:
        self._read(self._catalogue.models, self._show_models)

    @work(thread=True, group="drafters", exclusive=True)
    def _read_drafters(self, source: str) -> None:
        def show(found: Sequence[DrafterEntry]) -> None:
            self._shelf.drafters[source] = found
            self._show_drafters()

        kv_size = self._shelf.current.max_kv_size
        self._read(lambda: self._catalogue.drafters(source, kv_size), show)

    def _show_models(self, models: Sequence[ModelEntry]) -> None:
        self._shelf.models = models
        self._models.show(self._shelf.model_rows(), self._shelf.model_index())

    def _show_drafters(self) -> None:
        source = self._model.source if self._model is not None else ""
        self._drafters.show(self._shelf.drafter_rows(source), self._shelf.drafter_index(source))

    def _show_news(self) -> None:
        state, fetching = self._state, self._user_data.fetching
        news = load_news(state) or fetch_news(fetching) or table_news(state.table)
        row = self.query_one("#news", Static)
        row.display = bool(news)
        is_fetching = self._fetching is not None
        if self._was_fetching and not is_fetching:
            self._read_models()
        self._was_fetching = is_fetching
        row.update(news)
        self.refresh_bindings()

    @on(OptionList.OptionHighlighted, "#models")
    def _look_at_model(self) -> None:
        model = self._model
        if model is None:
            return
        self._shelf.warned_of = None  # the user has looked at another model
        self._show_detail(model_facts(model, self._shelf.memory_gb))
        self._show_drafters()
        if model.source not in self._shelf.drafters and not model.problem:
            self._read_drafters(model.source)

    @on(OptionList.OptionHighlighted, "#drafters")
    def _look_at_drafter(self) -> None:
        if self._drafter is not None and self._drafters.has_focus:
            self._show_detail(drafter_facts(self._drafter))

    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        model, drafter = self._model, self._drafter
        if model is None:
            return
        obstacle = self._shelf.obstacle(model)
        if obstacle is None and drafter is not None and drafter.problem:
            obstacle = drafter_facts(drafter)
        if obstacle is None:
            self.dismiss(self._shelf.pair(model.source, drafter))
        else:
            self._show_detail(obstacle)
            self.app.bell()

    @on(Input.Submitted)
    def _load_typed(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(self._shelf.pair(event.value.strip()))

    def action_stop(self) -> None:
        if self._fetching is not None:
            self._fetching.is_stopped = True
        else:
            self._send(Stop())

    def action_make_table(self) -> None:
        self._send(MakeTable())

    def action_fetch(self) -> None:
        assert self._model is not None  # `check_action` requires one
        obstacle = self._shelf.obstacle(self._model)
        if obstacle is not None:
            self._show_detail(obstacle)
            self.app.bell()
            return
        self._user_data.fetch(self._model)  # it outlives the picker
        self._show_news()

    def action_make_default(self) -> None:
        model, drafter = self._model, self._drafter
        if model is not None and not model.problem and not (drafter and drafter.problem):
            pair = self._shelf.pair(model.source, drafter)
            self.app.change("model", pair.model or None)
            self.app.change("drafter", pair.drafter)
            name = pair.model or "the default model"
            words = f"{name} with {pair.drafter}, from the next start on"
            self.notify(words, title="Default", timeout=3)

    def action_measure_again(self) -> None:
        model = self._model
        if model is None or model.problem or not model.is_here:
            self.app.bell()
            return
        self._measure_again(self._shelf.pair(model.source))

    @work(thread=True, group="measure", exclusive=True)
    def _measure_again(self, pair: ModelChoice) -> None:
        """Forget what `auto` found for this pair, and load it: `auto` then measures again."""
        forget = partial(self._catalogue.forget_verdict, pair.model, pair.max_kv_size)
        self._read(forget, lambda _: self.dismiss(pair))

    def _show_detail(self, what: Content) -> None:
        self.query_one("#facts", Static).update(what)

    def _read(self, look: Callable[[], T], show: Callable[[T], object]) -> None:
        """Call `look` in this thread and show its result, unless the worker is cancelled."""
        worker = get_current_worker()
        try:
            found = look()
        except Exception as error:  # the thread's edge: an error becomes a row on the screen
            words = f"{type(error).__name__}: {error}"
            if not worker.is_cancelled:
                self.app.call_from_thread(
                    self._show_detail, trouble("the models cannot be listed", words)
                )
            return
        if not worker.is_cancelled:
            self.app.call_from_thread(show, found)
