"""A table of one row per round, plain rounds included, for spreadsheets and data frames.

The text of the model is left out: a spreadsheet may evaluate its cells. The names of drafters come
from the recording, which can have any author. A cell that a spreadsheet would evaluate as a formula
starts with an apostrophe, which makes it text; a program must remove it. Numbers stay numbers,
negative ones too.
How formulas start: https://owasp.org/www-community/attacks/CSV_Injection
"""

import csv
import re
from collections import Counter
from collections.abc import Callable
from io import StringIO

from mlxspec_app.conversation.rounds import Round
from mlxspec_app.export.recording import Recording
from mlxspec_app.text.safe_text import safe_line

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # full-width signs too


def render(recording: Recording) -> str:
    """Return the rounds of all replies as comma-separated values with a header row."""
    out = StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["reply", *_COLUMNS])
    for number, reply in enumerate(recording.replies, 1):
        for round_ in reply.rounds:
            table.writerow([number, *(value_of(round_) for value_of in _COLUMNS.values())])
    return out.getvalue()


def _sources(round_: Round) -> str:
    """Return the drafters of the accepted nodes, with the number of nodes."""
    count = Counter(source for source in round_.sources if source)
    return _text(" ".join(f"{name}:{number}" for name, number in sorted(count.items())))


def _text(value: str) -> str:
    """Return a cell that no spreadsheet evaluates and that has no control characters."""
    mark = "'" if _FORMULA.match(value) else ""
    # Where the decimal separator is a comma, spreadsheets split cells at semicolons, quoted or not.
    return mark + safe_line(value).replace(";", ",")


_COLUMNS: dict[str, Callable[[Round], object]] = {
    "round": lambda round_: round_.verdict.r,
    "time_s": lambda round_: f"{round_.verdict.ts:.6f}",  # from the start of the reply
    "drafted_nodes": lambda round_: len(round_.nodes),
    "draft_depth_tokens": lambda round_: round_.depth,
    "accepted_tokens": lambda round_: round_.accepted,
    "emitted_tokens": lambda round_: len(round_.verdict.emit),
    "ended_by": lambda round_: _text(round_.verdict.emit[-1].kind if round_.verdict.emit else ""),
    "draft_ms": lambda round_: f"{round_.draft.ms if round_.draft is not None else 0.0:.3f}",
    "target_ms": lambda round_: f"{round_.verdict.ms:.3f}",
    "rolled_back_rows": lambda round_: getattr(round_.verdict, "rollback", 0),
    "context_tokens": lambda round_: round_.verdict.context,
    "sources": _sources,
}
