"""The rows above the prompt: notices, errors, and queued messages."""

from textual.content import Content
from textual.widgets import Static

from mlxspec_app.conversation.state import ChatState
from mlxspec_app.picker.model_rows import load_trouble
from mlxspec_app.text.safe_text import safe_line

_MOST_NOTICES = 3
_MOST_QUEUED = 3
_RESUME = "\u00b7 the reply met its token limit: /continue goes on"


class NoticeRows(Static):
    """Shows the last notices and the queue; hidden if both are empty."""

    def __init__(self, *, can_adjust: bool = False) -> None:
        """With `can_adjust`, rows name the commands that help."""
        super().__init__()
        self._rows: list[Content] = []
        self._can_adjust = can_adjust

    def show(self, state: ChatState) -> None:
        rows = [*_troubles(state), *_stopping(state)]
        rows += [_note(f"\u00b7 {safe_line(news)}") for news in state.news[-_MOST_NOTICES:]]
        rows += [*self._hint(state), *self._advice(state), *_queued(state.queue)]
        if rows != self._rows:
            self._rows = rows
            self.display = bool(rows)
            self.update(Content("\n").join(rows))

    def _hint(self, state: ChatState) -> list[Content]:
        cut = state.cut_reply if self._can_adjust and state.phase == "ready" else None
        return [_note(_RESUME)] if cut is not None and cut.reason == "length" else []

    def _advice(self, state: ChatState) -> list[Content]:
        slowdown = state.speeds.slowdown(state.reply)
        if slowdown is None:
            return []
        cost = f"{slowdown:.0%}".replace("%", " %")
        way_out = "; /k 0 turns it off" if self._can_adjust else ""
        return [_note(f"\u00b7 guessing makes replies {cost} slower here{way_out}")]


def _troubles(state: ChatState) -> list[Content]:
    rows = [
        Content.assemble(("! ", "$spec-corrected bold"), (safe_line(notice), "$spec-corrected"))
        for notice in state.notices[-_MOST_NOTICES:]
    ]
    failure = load_trouble(state)
    if failure is not None and state.messages:
        rows.append(failure + Content.styled(f"  {_keys(state)}", "$spec-muted bold"))
    return rows


def _stopping(state: ChatState) -> list[Content]:
    """Return a row while a stop waits for the prefill; after a round it is too brief to read."""
    reply = state.reply
    is_reading = reply is None or not (reply.spans or reply.is_finished)
    if not (state.is_stopping and state.phase == "busy" and is_reading):
        return []
    return [_note("stopping as soon as this part of the prompt is read …")]


def _note(words: str) -> Content:
    return Content.styled(words, "$spec-muted")


def _keys(state: ChatState) -> str:
    """Return the keys that help when a model could not be loaded."""
    if state.choice is None:
        return "Ctrl+Q quits"
    again = "Ctrl+R tries again, " if state.phase == "failed" else ""
    return f"{again}Ctrl+O chooses another"


def _queued(queue: list[str]) -> list[Content]:
    rows = [
        Content.assemble(("⋯ waits  ", "$spec-muted"), (safe_line(text), "$foreground")).first_line
        for text in queue[:_MOST_QUEUED]
    ]
    if len(queue) > _MOST_QUEUED:
        rows.append(_note(f"  and {len(queue) - _MOST_QUEUED} more"))
    return rows
