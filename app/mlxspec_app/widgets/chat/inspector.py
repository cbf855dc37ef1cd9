"""The token inspector: the kind of a token, the draft tokens it beat, and its alternatives.

The alternatives are what else the model could have written there. They cost a forward, so they are
shown on request only. In the X-ray the user can mark one and choose it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.style import Style
from textual.widget import Widget

from mlxspec.trace.events import Alternative
from mlxspec_app.conversation.events import AlternativesFound
from mlxspec_app.conversation.figures import prob
from mlxspec_app.conversation.tokens import Step, TokenFacts
from mlxspec_app.conversation.views import DEFAULT_VIEW, View
from mlxspec_app.text.safe_text import safe_line, token_label
from mlxspec_app.widgets.draft.lane_rows import MARK_STYLES, MUTED, SIGNS, marked
from mlxspec_app.widgets.draft.legend import MEANINGS, PLAIN_WORDS

_MOST_RIVALS = 6
_META = "alternative"
_HOW = "       ↑↓ mark one · Enter: branch from here with this token"
_USUAL_WIDTH = 80
_TERMS = ("target p", "drafter q", "over")
_PLAIN = ("the model's probability", "the drafter's", "instead of")


class Inspector(Widget):
    """Shows the facts of the token under the cursor; hidden while the cursor is off."""

    DEFAULT_CSS = """
    Inspector {
        height: auto;
        padding: 0 1;
        border-top: solid $spec-line;
        display: none;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """
    ALLOW_SELECT = False

    @dataclass
    class Chosen(Message):
        """The user clicked the marked alternative: the reply is to continue from it."""

    def __init__(self) -> None:
        super().__init__()
        self._facts: TokenFacts | None = None
        self._others: AlternativesFound | None = None
        self._is_asked = False
        self._marked: int | None = None
        self._view = DEFAULT_VIEW

    def set_view(self, view: View) -> None:
        """Use the terms of a view: those of the field in the X-ray, plain words elsewhere."""
        self._view, self._marked = view, None
        self.refresh(layout=True)

    @property
    def facts(self) -> TokenFacts | None:
        return self._facts

    def show(self, facts: TokenFacts | None) -> None:
        self.display = facts is not None
        if facts != self._facts:
            self._facts, self._others, self._is_asked = facts, None, False
            self._marked = None
            self.refresh(layout=True)

    @property
    def chosen(self) -> Alternative | None:
        """The marked alternative."""
        return self._choices[self._marked] if self._marked is not None else None

    @property
    def _choices(self) -> Sequence[Alternative]:
        """The alternatives that can be chosen; none outside the X-ray."""
        is_shown = self._others is not None and not self._view.is_rendered
        return self._others.found if self._others is not None and is_shown else ()

    def pick(self, step: Step) -> bool:
        """Mark the next or the previous alternative; return whether there are any."""
        if not self._choices:
            return False
        at = -1 if self._marked is None and step > 0 else self._marked or 0
        self._marked = (at + step) % len(self._choices)
        self.refresh()
        return True

    def on_click(self, event: events.Click) -> None:
        number = event.style.meta.get(_META)
        if number is None or number >= len(self._choices):
            return
        if number == self._marked:
            self.post_message(self.Chosen())
        self._marked = number
        self.refresh()

    def ask(self) -> None:
        """Show that the model is computing the alternatives."""
        self._is_asked, self._others, self._marked = True, None, None
        self.refresh(layout=True)

    def show_alternatives(self, others: AlternativesFound) -> None:
        """Show the alternatives to the token on the screen."""
        self._others, self._is_asked, self._marked = others, False, None
        self.refresh(layout=True)

    def render(self) -> Content:
        if self._facts is None:
            return Content("")
        if self._view.is_rendered:
            rows = [_author(self._facts), _against(self._facts, _PLAIN)]
        else:
            rows = [_origin(self._facts), _against(self._facts, _TERMS)]
        if self._is_asked:
            rows.append(Content.styled("       asking the model ...", MUTED))
        elif self._others is not None:
            width = self.size.width or _USUAL_WIDTH
            rows += _instead(self._others, self._facts.token.token, self._marked, width)
        if self._choices:
            rows.append(Content.styled(_HOW, MUTED))
        return Content("\n").join(rows)


def _author(facts: TokenFacts) -> Content:
    """Return the token and who wrote it, in plain words."""
    name, style, meaning = PLAIN_WORDS[facts.token.kind == "accepted"]
    if facts.token.kind == "kept":
        name, meaning = "kept", MEANINGS["kept"]
    return Content.assemble(
        ("word   ", MUTED),
        (token_label(facts.text), style),
        (f"  {name}", style),
        (f": {meaning}", MUTED),
    )


def _origin(facts: TokenFacts) -> Content:
    kind = facts.token.kind
    style = MARK_STYLES[kind]
    source = f", by {safe_line(facts.source)}" if facts.source else ""
    return Content.assemble(
        ("token  ", MUTED),
        (f"{SIGNS[kind]}{token_label(facts.text)}", style),
        (f"  {kind}", style.split(" ")[0]),
        (f": {MEANINGS[kind]}{source}", MUTED),
        (f"   {_place(facts)}id {facts.token.token}", MUTED),
    )


def _place(facts: TokenFacts) -> str:
    return f"round {facts.round}, depth {facts.depth}, " if facts.round else ""


def _instead(
    others: AlternativesFound, written: int, marked: int | None, width: int
) -> list[Content]:
    """Return the alternatives with their probabilities under the model alone and as drawn from.

    The second ones are left out if all equal the first when rounded. `written` is the token id in
    the reply, `marked` an index into the alternatives; `width` is in cells.
    """
    if not others.found:
        return [Content.styled(f"       {safe_line(others.message)}", MUTED)]
    labels = [
        _label(each, number, each.token == written, number == marked)
        for number, each in enumerate(others.found)
    ]
    model_probs = [each.model_prob for each in others.found]
    rows = _rows("model  ", labels, model_probs, width)
    probs = [each.prob for each in others.found]
    if any(
        prob and f"{prob:.2f}" != f"{p:.2f}" for prob, p in zip(probs, model_probs, strict=True)
    ):
        rows += _rows("drawn  ", labels, probs, width)
    return rows


def _label(each: Alternative, number: int, is_written: bool, is_marked: bool) -> Content:
    style = "$foreground" + " bold" * is_written + " reverse" * is_marked
    label = Content.styled(safe_line(token_label(each.text)), style)
    return label.stylize(Style.from_meta({_META: number}))


def _rows(
    name: str, labels: Sequence[Content], probs: Sequence[float | None], width: int
) -> list[Content]:
    """Return the alternatives that have a probability, in as many rows as they need."""
    rows = [Content.styled(name, MUTED)]
    for label, value in zip(labels, probs, strict=True):
        if not value:
            continue
        part = label + Content.styled(f" {prob(value)}   ", MUTED)
        if rows[-1].cell_length + part.rstrip().cell_length > width:
            rows.append(Content(" " * len(name)))
        rows[-1] += part
    return rows


def _against(facts: TokenFacts, words: tuple[str, str, str]) -> Content:
    p, q = prob(facts.token.target_prob), prob(facts.token.draft_prob)
    target, drafter, over = words
    figures = [f"{target} {p}" if p else "", f"{drafter} {q}" if q else ""]
    row = Content.styled("       " + "   ".join(filter(None, figures)), "$foreground")
    if not facts.rivals:
        return row
    rivals = [
        marked(rival) + Content.styled(prob(rival.draft_prob), MUTED)
        for rival in facts.rivals[:_MOST_RIVALS]
    ]
    more = len(facts.rivals) - len(rivals)
    rest = Content.styled(f"  and {more} more" if more else "", MUTED)
    return row + Content.styled(f"   {over}  ", MUTED) + Content("  ").join(rivals) + rest
