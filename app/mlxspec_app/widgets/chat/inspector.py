"""The token inspector: the kind of a token, the draft tokens it beat, and its alternatives.

The alternatives, what else the model could have written there, cost a forward: they are shown on
request only. The user can mark one and choose it.
"""

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from mlxspec.trace.events import Alternative
from mlxspec_app.conversation.events import AlternativesFound
from mlxspec_app.conversation.figures import prob
from mlxspec_app.conversation.tokens import Step, TokenFacts
from mlxspec_app.conversation.views import CALM, View
from mlxspec_app.text.safe_text import safe_line, token_label
from mlxspec_app.widgets.draft.marks import KINDS, MUTED, PLAIN_WORDS, marked

_MOST_RIVALS = 6
_META = "alternative"
_HOW = "       ↑↓ mark one · Enter: branch from here with this token"
_USUAL_WIDTH = 80
_TERMS = ("target p", "drafter q", "over")
_PLAIN = ("the model's probability", "the drafter's", "instead of")


class Inspector(Widget):
    """Shows the facts of the token under the cursor; hidden while the cursor is off."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self.facts: TokenFacts | None = None
        self._others: AlternativesFound | None = None
        self._is_asked = False
        self._marked: int | None = None
        self._view = CALM

    def set_view(self, view: View) -> None:
        """Use the terms of a view: those of the field in the X-ray, plain words elsewhere."""
        self._view = view
        self.refresh(layout=True)

    def show(self, facts: TokenFacts | None) -> None:
        self.display = facts is not None
        if facts != self.facts:
            self.facts = facts
            self.show_alternatives(None)

    @property
    def chosen(self) -> Alternative | None:
        return self._choices[self._marked] if self._marked is not None else None

    @property
    def _choices(self) -> Sequence[Alternative]:
        return () if self._others is None else self._others.found

    def pick(self, step: Step) -> bool:
        """Mark the next or the previous alternative; return whether there are any."""
        if not self._choices:
            return False
        at = -1 if self._marked is None and step > 0 else self._marked or 0
        self._marked = (at + step) % len(self._choices)
        self.refresh()
        return True

    async def on_click(self, event: events.Click) -> None:
        number = event.style.meta.get(_META)
        if number is None or number >= len(self._choices):
            return
        if number == self._marked:
            await self.run_action("screen.alternatives")
        else:
            self._marked = number
            self.refresh()

    def show_alternatives(
        self, others: AlternativesFound | None, *, is_asked: bool = False
    ) -> None:
        """Show the alternatives, or that the model is asked for them; None hides them."""
        self._others, self._is_asked, self._marked = others, is_asked, None
        self.refresh(layout=True)

    def render(self) -> Content:
        if self.facts is None:
            return Content("")
        if self._view.is_rendered:
            rows = [_author(self.facts), _against(self.facts, _PLAIN)]
        else:
            rows = [_origin(self.facts), _against(self.facts, _TERMS)]
        if self._is_asked:
            rows.append(Content.styled("       asking the model ...", MUTED))
        elif self._others is not None:
            width = self.size.width or _USUAL_WIDTH
            rows += _instead(self._others, self.facts.token.token, self._marked, width)
        if self._choices:
            rows.append(Content.styled(_HOW, MUTED))
        return Content("\n").join(rows)


def _author(facts: TokenFacts) -> Content:
    """Return the token and who wrote it, in plain words."""
    name, style, meaning = PLAIN_WORDS[facts.token.kind == "accepted"]
    if facts.token.kind == "kept":
        name, meaning = "kept", KINDS["kept"].meaning
    return Content.assemble(
        ("word   ", MUTED),
        (token_label(facts.text), style),
        (f"  {name}", style),
        (f": {meaning}", MUTED),
    )


def _origin(facts: TokenFacts) -> Content:
    kind = facts.token.kind
    sign, style, meaning = KINDS[kind]
    source = f", by {safe_line(facts.source)}" if facts.source else ""
    place = f"round {facts.round}, depth {facts.depth}, " if facts.round else ""
    return Content.assemble(
        ("token  ", MUTED),
        (f"{sign}{token_label(facts.text)}", style),
        (f"  {kind}", style.split(" ")[0]),
        (f": {meaning}{source}", MUTED),
        (f"   {place}id {facts.token.token}", MUTED),
    )


def _instead(
    others: AlternativesFound, written: int, marked: int | None, width: int
) -> list[Content]:
    """Return the alternatives with their probabilities under the model alone and as drawn from.

    The second ones are left out if all equal the first when rounded.
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
