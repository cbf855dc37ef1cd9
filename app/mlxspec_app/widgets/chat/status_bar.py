"""The top row: models, the lossless guarantee, context use, speed and memory."""

import re
from collections.abc import Iterator

from textual.content import Content
from textual.widget import Widget

from mlxspec_app.conversation.figures import Part, count, fitting, loading_words, speed_words
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.conversation.views import CALM
from mlxspec_app.text.bars import meter
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.explained import Explained

_METER_CELLS = 10
_NEARLY_FULL = 0.9
_FULL_SIGN = "! "
_GAP = 3
_XRAY_RANK = 5  # parts of this rank and above are for the X-ray
_NAME_CELLS = 40
_NAME = " mlxspec "
_NO_GUESSES = "guessing off"
_RING = re.compile(r"rotating (\d{1,9})\b")


class StatusBar(Explained, Widget):
    """Shows the state of the session in one row, outside the X-ray only what a reader needs."""

    ALLOW_SELECT = False

    def __init__(self, note: str = "") -> None:
        """Make an empty bar; `note` follows the name of the app."""
        super().__init__()
        self.view = CALM
        self._note = note
        self._parts: list[Part] = []

    def show(self, state: ChatState) -> None:
        parts = status_parts(state)
        if self.view.is_rendered:
            parts = [part for part in parts if part.rank < _XRAY_RANK]
        if parts != self._parts:
            self._parts = parts
            self.refresh()

    def render(self) -> Content:
        name = Content.styled(_NAME, "bold reverse")
        if self._note:
            name += Content.styled(f" {self._note} ", "$foreground on $spec-line")
        width = self.size.width - name.cell_length - _GAP
        shown = fitting(self._parts, width, _GAP)
        row = Content(" " * _GAP).join(_styled(part) for part in shown)
        return name + Content("  ") + row


def status_parts(state: ChatState) -> list[Part]:
    """Return the parts of the bar in order; the largest rank is left out first."""
    reply = state.reply
    parts = [_models(state)]
    if state.phase == "loading" and state.messages:
        parts = [Part(loading_words(state.target, state.loading))]
    if reply is not None and reply.drafter_fault:
        parts.append(Part(_NO_GUESSES))
    started = reply.started if reply is not None else None
    if started is not None or state.phase == "ready":
        parts.append(Part("● exact" if started and started.exact else "● lossless", 3))
    if started is not None:
        parts.append(Part(safe_line(started.lossless), 6))
        parts += _drafts(started.drafts)
    if ring := _ring(state):
        parts.append(Part(f"rotating cache {count(ring)}", 3))
    elif state.context_length:
        parts.append(Part(_meter(state.context, state.context_length), 4))
    if reply is not None and reply.stats.generated_tokens:
        parts.append(Part(f"{reply.stats.generation_tps:.1f} tokens/s", 1))
        if gain := speed_words(reply):
            parts.append(Part(gain, 5))
    if reply is not None and reply.peak_memory is not None:
        parts.append(Part(f"{reply.peak_memory:.1f} GB", 7))
    return parts


def _models(state: ChatState) -> Part:
    if not state.target or state.phase == "failed":
        return Part({"loading": "loading …", "failed": "no model"}.get(state.phase, "ready"))
    target, drafter = (safe_line(name)[:_NAME_CELLS] for name in (state.target, state.drafter))
    return Part(f"{target} ◂ {drafter}" if drafter else target)


def _ring(state: ChatState) -> int:
    """Return the number of rows of a rotating cache; 0 for a full cache."""
    if state.choice is not None:
        return state.choice.max_kv_size or 0
    started = state.reply.started if state.reply is not None else None
    ring = _RING.match(started.cache) if started is not None else None  # the cache of a recording
    return int(ring[1]) if ring else 0


def _drafts(drafts: str) -> Iterator[Part]:
    """Yield the drafts that the model verifies; `/context` shows what limits them."""
    words, _, limits = safe_line(drafts).partition(" (")
    if words:
        yield Part(f"{words} only" if limits else words, 2 if limits else 8)


def _meter(used: int, length: int) -> str:
    sign = _FULL_SIGN if used / length >= _NEARLY_FULL else ""
    return f"{sign}ctx {meter(used / length, _METER_CELLS)} {count(used)}/{count(length)}"


def _styled(part: Part) -> Content:
    if "tokens/s" in part.text:
        return Content.styled(part.text, "$foreground bold")
    if part.text == _NO_GUESSES or part.text.startswith(_FULL_SIGN):
        return Content.styled(part.text, "$spec-corrected bold")
    if " ◂ " in part.text:
        target, _, drafter = part.text.partition(" ◂ ")
        return Content.assemble((target, "$foreground"), (f" ◂ {drafter}", "$spec-accepted"))
    return Content.styled(part.text, "$spec-muted")
