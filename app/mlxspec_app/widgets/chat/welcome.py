"""The page of an empty conversation: what the app is, the legend of colours, and examples.

It also shows the progress while the model loads.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static

from mlxspec_app.conversation.figures import size
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.store.records import Entry, Overview
from mlxspec_app.text.bars import meter
from mlxspec_app.text.chat_labels import ago
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.widgets.draft.marks import plain_legend

_MUTED = "$spec-muted"
_METER_CELLS = 32
_NAME_CELLS = 40


class Example(NamedTuple):
    """A prompt to try, and a sign for the expected acceptance of drafts in its reply."""

    kind: str
    expectation: str
    prompt: str


class Way(NamedTuple):
    """An action of the screen that helps when no model could be loaded."""

    key: str
    meaning: str
    action: str
    needs_session: bool = False


TYPE = "Type, or Tab for an example (↑ easy to guess, ↓ hard):"
EXAMPLES = (
    Example("code", "↑", "Write a Python function that merges two sorted lists."),
    Example("JSON", "↑", "List the planets of the solar system as JSON."),
    Example("prose", "→", "Explain in three sentences why the sky is blue."),
    Example("poem", "↓", "Write a short poem about a lighthouse."),
)
WAYS_OUT = (
    Way("Ctrl+R", "try again", "regenerate", needs_session=True),
    Way("Ctrl+O", "choose another model", "model", needs_session=True),
    Way("F6", "watch a recorded chat", "replay"),
    Way("Ctrl+Q", "quit", "app.quit"),
)
_TITLE = Content.assemble(
    ("mlxspec", "$foreground bold"),
    (
        "\nA small drafter guesses, the model checks all guesses in one pass. "
        "Every word is the model's own; only the wait gets shorter.",
        _MUTED,
    ),
)


class Welcome(VerticalScroll, can_focus=False):
    """The page that is visible until the first message."""

    @dataclass
    class Chosen(Message):
        """The user chose an example."""

        prompt: str

    def __init__(self, examples: Sequence[Example] = EXAMPLES, invitation: str = TYPE) -> None:
        """Make the page; it shows `invitation` when the model is ready."""
        super().__init__()
        self._examples, self._invitation = examples, invitation
        self._ways: list[Way] = []

    def compose(self) -> ComposeResult:
        yield Static(_TITLE, id="title")
        yield Static(Content("\n").join(plain_legend()), id="legend")
        yield Static(id="system")
        yield Static(id="stored")
        yield Static(id="progress")
        if self._examples:
            examples = (_option(example) for example in self._examples)
            yield OptionList(*examples, id="examples", compact=True)
            yield OptionList(id="ways-out", compact=True)

    def show(self, state: ChatState) -> None:
        self.query_one("#progress", Static).update(_progress(state, self._invitation))
        prompt = self.query_one("#system", Static)
        prompt.display = bool(state.system)
        words = (safe_line(state.system), "$foreground")
        prompt.update(Content.assemble(("system prompt: ", _MUTED), words, "\n"))
        for options in self.query("#examples"):
            options.display = state.phase == "ready"
        for options in self.query("#ways-out").results(OptionList):
            self._show_ways_out(options, state)

    def show_chats(self, chats: Overview) -> None:
        """Show the number of stored chats, and the last one."""
        stored = self.query_one("#stored", Static)
        stored.display = chats.last is not None
        if chats.last is not None:
            stored.update(_stored_chats(chats.num_chats, chats.last))

    def _show_ways_out(self, options: OptionList, state: ChatState) -> None:
        options.display = state.phase == "failed"
        ways = [way for way in WAYS_OUT if state.choice is not None or not way.needs_session]
        if options.display and ways != self._ways:
            self._ways = ways
            options.set_options(
                Content.assemble((f"{way.key:>8}  ", "$foreground bold"), (way.meaning, _MUTED))
                for way in ways
            )
            options.highlighted = 0

    @on(OptionList.OptionSelected, "#ways-out")
    async def _leave(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        await self.screen.run_action(self._ways[event.option_index].action)

    @on(OptionList.OptionSelected, "#examples")
    def _choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self._examples[event.option_index].prompt))


def _option(example: Example) -> Content:
    return Content.assemble(
        (f"{example.kind:>5} ", "$foreground bold"),
        (f"{example.expectation}  ", "$spec-accepted"),
        (example.prompt, _MUTED),
    )


def _stored_chats(num_chats: int, last: Entry) -> Content:
    chats = "1 chat" if num_chats == 1 else f"{num_chats} chats"
    title = set_cell_size(safe_line(last.title), min(_NAME_CELLS, cell_len(last.title))).rstrip()
    return Content.assemble(
        ("Ctrl+L", "$foreground bold"),
        (f": {chats}; last: ", _MUTED),
        (title, "$foreground"),
        (f", {ago(last.changed, time.time())}", _MUTED),
    )


def _progress(state: ChatState, invitation: str) -> Content:
    if state.phase == "failed":
        why = (safe_text(state.error), "$spec-rejected")
        return Content.assemble(("✗ ", "$spec-rejected bold"), why)
    if state.phase == "loading":
        return loading_rows(state)
    return Content.styled(invitation, _MUTED)


def loading_rows(state: ChatState) -> Content:
    """Return the progress of the loading model in one or two rows."""
    progress, target = state.loading, safe_line(state.target)[:_NAME_CELLS] or "the model"
    if progress is None or progress.total <= progress.done:
        return Content.styled(f"loading {target} …", "$foreground")
    share = progress.done / progress.total
    return Content.assemble(
        (f"downloading {target}, just this once\n", "$foreground"),
        (f"{meter(share, _METER_CELLS)}  {share:.0%}", "$foreground"),
        (f"  {size(progress.done)} of {size(progress.total)}", _MUTED),
    )
