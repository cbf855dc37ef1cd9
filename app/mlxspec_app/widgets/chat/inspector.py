"""The token inspector: the kind of a token, the drafts that it beat, and what else was possible.

What else the model could have written there is shown once that was asked for: it costs a forward.
"""

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from mlxspec.trace.alternatives import Alternative
from mlxspec_app.conversation.figures import prob
from mlxspec_app.conversation.session import AlternativesFound
from mlxspec_app.conversation.token_facts import TokenFacts
from mlxspec_app.conversation.views import DEFAULT_VIEW, View
from mlxspec_app.text.safe_text import safe_line, token_label
from mlxspec_app.widgets.draft.lane_rows import MARK_STYLES, MUTED, SIGNS, marked
from mlxspec_app.widgets.draft.legend import MEANINGS, PLAIN_WORDS

_MOST_RIVALS = 6
_TERMS = ("target p", "drafter q", "over")
_PLAIN = ("the model's probability", "the drafter's", "instead of")


class Inspector(Widget):
    """Shows the facts of a token; hidden while the cursor is on none."""

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

    def __init__(self) -> None:
        """Make an empty inspector."""
        super().__init__()
        self._facts: TokenFacts | None = None
        self._others: AlternativesFound | None = None
        self._is_asked = False
        self._view = DEFAULT_VIEW

    def set_view(self, view: View) -> None:
        """Use the words of a view: the field's in the X-ray, plain ones elsewhere."""
        self._view = view
        self.refresh()

    @property
    def facts(self) -> TokenFacts | None:
        """The facts that are shown."""
        return self._facts

    def show(self, facts: TokenFacts | None) -> None:
        self.display = facts is not None
        if facts != self._facts:
            self._facts, self._others, self._is_asked = facts, None, False
            self.refresh(layout=True)

    def ask(self) -> None:
        """Show that the model is asked what else it could have written."""
        self._is_asked = True
        self.refresh(layout=True)

    def show_alternatives(self, others: AlternativesFound) -> None:
        """Show what else the model could have written in the place of the shown token."""
        self._others, self._is_asked = others, False
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
            rows += _instead(self._others, self._facts.token.token)
        return Content("\n").join(rows)


def _author(facts: TokenFacts) -> Content:
    """Return the token and who wrote it, in plain words."""
    name, style, meaning = PLAIN_WORDS[facts.token.kind == "accepted"]
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
        (f"   round {facts.round}, depth {facts.depth}, id {facts.token.token}", MUTED),
    )


def _instead(others: AlternativesFound, written: int) -> list[Content]:
    """Return the probabilities under the model alone, and those from which the token was drawn."""
    if not others.found:
        return [Content.styled(f"       {safe_line(others.message)}", MUTED)]
    rows = [_row("model  ", [(each, each.model_prob) for each in others.found], written)]
    drawn = [(each, each.prob) for each in others.found if each.prob]
    if drawn and any(f"{each.model_prob:.2f}" != f"{prob:.2f}" for each, prob in drawn):
        rows.append(_row("drawn  ", drawn, written))
    return rows


def _row(name: str, probs: Sequence[tuple[Alternative, float | None]], written: int) -> Content:
    parts = []
    for each, value in probs:
        style = "$foreground bold" if each.token == written else "$foreground"
        label = safe_line(token_label(each.text))
        parts.append(Content.assemble((label, style), (f" {prob(value) or '?'}", MUTED)))
    return Content.styled(name, MUTED) + Content("   ").join(parts)


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
