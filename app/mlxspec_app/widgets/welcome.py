"""The empty conversation: what this is, what the colours mean, and something to begin with.

While the model loads it shows how far that is, so that the wait teaches the legend.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static

from mlxspec_app.bars import meter
from mlxspec_app.phrases import size
from mlxspec_app.safe_text import safe_line, safe_text
from mlxspec_app.state import ChatState
from mlxspec_app.widgets.legend import legend

_MUTED = "$spec-muted"
_METER_CELLS = 32
_NAME_CELLS = 40


@dataclass(frozen=True)
class Example:
    """A prompt to try, and how much of its reply a draft can be expected to guess."""

    kind: str
    expectation: str
    prompt: str


EXAMPLES: tuple[Example, ...] = (
    Example("code", "↑", "Write a Python function that merges two sorted lists."),
    Example("JSON", "↑", "List the planets of the solar system as JSON."),
    Example("prose", "→", "Explain in three sentences why the sky is blue."),
    Example("poem", "↓", "Write a short poem about a lighthouse."),
)


class Welcome(VerticalScroll, can_focus=False):
    """Shown until the first message."""

    DEFAULT_CSS = """
    Welcome {
        align: center middle;
        padding: 0 1;
        scrollbar-size-vertical: 1;
        & > Static, & > OptionList { width: 100%; max-width: 76; height: auto; }
        & > #legend { margin: 1 0; }
        & > OptionList {
            border: none;
            padding: 0;
            background: $background;
            text-wrap: nowrap;
            text-overflow: ellipsis;
            & > .option-list--option { padding: 0; }
            & > .option-list--option-highlighted {
                background: $background;
                color: $foreground;
                text-style: none;
            }
            &:focus > .option-list--option-highlighted { background: $spec-line; }
        }
    }
    """

    @dataclass
    class Chosen(Message):
        """An example was chosen."""

        prompt: str

    def __init__(self, examples: Sequence[Example] = EXAMPLES) -> None:
        """Make the page; `examples` may be empty."""
        super().__init__()
        self._examples = examples

    def compose(self) -> ComposeResult:
        yield Static(_title(), id="title")
        yield Static(Content("\n").join(legend(kept_only=True)), id="legend")
        yield Static(id="system")
        yield Static(id="progress")
        if self._examples:
            yield OptionList(*(_option(example) for example in self._examples), id="examples")

    def show(self, state: ChatState) -> None:
        self.query_one("#progress", Static).update(_progress(state))
        prompt = self.query_one("#system", Static)
        prompt.display = bool(state.system)
        prompt.update(_system(state.system))
        for options in self.query(OptionList):
            options.display = state.phase == "ready"

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self._examples[event.option_index].prompt))


def _title() -> Content:
    return Content.assemble(
        ("mlxspec", "$foreground bold"),
        "\n",
        (
            "A small drafter guesses, the target model checks all guesses in one pass. "
            "The words are the target's own; only the waiting gets shorter.",
            _MUTED,
        ),
    )


def _system(text: str) -> Content:
    return Content.assemble(("system prompt: ", _MUTED), (safe_line(text), "$foreground"), "\n")


def _option(example: Example) -> Content:
    return Content.assemble(
        (f"{example.kind:>5} ", "$foreground bold"),
        (f"{example.expectation}  ", "$spec-accepted"),
        (example.prompt, _MUTED),
    )


def _progress(state: ChatState) -> Content:
    if state.phase == "failed":
        return Content.assemble(
            ("✗ ", "$spec-rejected bold"),
            (safe_text(state.error), "$spec-rejected"),
            ("\nCtrl+Q quits", _MUTED),
        )
    if state.phase == "loading":
        return loading_rows(state)
    return Content.styled("Type, or Tab for an example (↑ drafts well, ↓ hardly):", _MUTED)


def loading_rows(state: ChatState) -> Content:
    """Return how far the loading of the model is, in a row or two."""
    progress, target = state.loading, safe_line(state.target)[:_NAME_CELLS] or "the model"
    if progress is None or progress.total <= progress.done:
        return Content.styled(f"loading {target} …", "$foreground")
    share = progress.done / progress.total
    return Content.assemble(
        (f"downloading {target}, this once\n", "$foreground"),
        (f"{meter(share, _METER_CELLS)}  {share:.0%}", "$foreground"),
        (f"  {size(progress.done)} of {size(progress.total)}", _MUTED),
    )
