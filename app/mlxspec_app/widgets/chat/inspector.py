"""The token inspector: two rows on one token, with its kind and the draft tokens that it beat."""

from textual.content import Content
from textual.widget import Widget

from mlxspec_app.conversation.figures import prob
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
        height: 3;
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
        self._view = DEFAULT_VIEW

    def set_view(self, view: View) -> None:
        """Use the words of a view: the field's in the X-ray, plain ones elsewhere."""
        self._view = view
        self.refresh()

    def show(self, facts: TokenFacts | None) -> None:
        self.display = facts is not None
        if facts != self._facts:
            self._facts = facts
            self.refresh()

    def render(self) -> Content:
        if self._facts is None:
            return Content("")
        if self._view.is_rendered:
            return Content("\n").join([_author(self._facts), _against(self._facts, _PLAIN)])
        return Content("\n").join([_origin(self._facts), _against(self._facts, _TERMS)])


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
