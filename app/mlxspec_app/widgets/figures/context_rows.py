"""Rows on the use of the model's context: tokens of replies, of questions, and free ones."""

from textual.content import Content

from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.figures.rows import MUTED, bar_row, heading

_NAME_CELLS = 26
_NOTHING = "empty: it fills with the first reply"


def context_rows(state: ChatState, width: int) -> list[Content]:
    """Return the rows, each at most `width` cells wide if that leaves a cell for a bar."""
    reply = state.reply
    if reply is None or not state.context:
        return [heading("context", "", width), Content.styled(_NOTHING, MUTED)]
    length = state.context_length
    used = f"{state.context:,} of {length:,} tokens" if length else f"{state.context:,} tokens"
    rows = [heading("context", used, width)]
    for name, count, style in _parts(state, reply):
        label, figure = (name.ljust(_NAME_CELLS), MUTED), (f"{count:>9,}", "$foreground")
        rows.append(bar_row(width, label, count / (length or state.context), style, figure))
    return [*rows, Content(""), *(Content.styled(line, MUTED) for line in _notes(state, reply))]


def _parts(state: ChatState, reply: Reply) -> list[tuple[str, int, str]]:
    """Return the parts of the context as (name, number of tokens, colour)."""
    written = [m.stats.generated_tokens for m in state.messages if isinstance(m, Reply)]
    last = min(state.context, reply.stats.generated_tokens)
    earlier = min(state.context - last, sum(written) - reply.stats.generated_tokens)
    parts = [
        ("the last reply", last, "$spec-accepted"),
        ("replies before it", earlier, "$spec-accepted"),
        ("questions and the template", state.context - last - earlier, "$foreground"),
    ]
    if state.context_length:
        parts.append(("room left", max(0, state.context_length - state.context), MUTED))
    return parts


def _notes(state: ChatState, reply: Reply) -> list[str]:
    notes = []
    if reply.prefill is not None:
        total, reused = reply.prefill.total, reply.prefill.reused
        notes.append(f"the last turn read {total - reused:,} tokens; {reused:,} were still cached")
    if reply.started is not None:
        notes.append(f"cache: {safe_line(reply.started.cache)}")
        if reply.started.drafts:
            notes.append(f"the model verifies {safe_line(reply.started.drafts)}")
        if not state.context_length:
            notes.append("it never fills: the oldest rows make way for new ones")
    return notes
