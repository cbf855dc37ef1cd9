"""A table of one row per round, plain rounds included, for spreadsheets and data frames.

The text of the model is left out: a spreadsheet may evaluate its cells. The names of drafters come
from the recording, which can have any author. A cell that a spreadsheet would evaluate as a formula
starts with an apostrophe, which makes it text; a program must remove it. Numbers stay numbers,
negative ones too.
How formulas start: https://owasp.org/www-community/attacks/CSV_Injection
"""

import csv
import re
from io import StringIO

from mlxspec.trace.events import DraftVerified
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.export.recording import Recording
from mlxspec_app.text.safe_text import safe_line

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # full-width signs too
COLUMNS = (
    "reply",
    "round",
    "time_s",
    "drafted_nodes",
    "draft_depth_tokens",
    "accepted_tokens",
    "emitted_tokens",
    "ended_by",
    "draft_ms",
    "target_ms",
    "rolled_back_rows",
    "context_tokens",
    "sources",
)
"""`time_s` counts from the start of the reply; `ended_by` is the kind of the last token; `sources`
are the drafters of the accepted nodes, with the number of nodes."""


def render(recording: Recording) -> str:
    """Return the rounds of all replies as comma-separated values with a header row."""
    out = StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for number, reply in enumerate(recording.replies, 1):
        table.writerows([number, *_values(round_)] for round_ in reply.rounds)
    return out.getvalue()


def _values(round_: Round) -> list[object]:
    verdict = round_.verdict
    sources = [source for source in round_.sources if source]
    return [
        verdict.r,
        f"{verdict.ts:.6f}",
        len(round_.nodes),
        round_.depth,
        round_.accepted,
        len(verdict.emit),
        _text(verdict.emit[-1].kind) if verdict.emit else "",
        f"{round_.draft.ms if round_.draft is not None else 0.0:.3f}",
        f"{verdict.ms:.3f}",
        verdict.rollback if isinstance(verdict, DraftVerified) else 0,
        verdict.context,
        _text(" ".join(f"{name}:{sources.count(name)}" for name in sorted(set(sources)))),
    ]


def _text(value: str) -> str:
    """Return a cell that no spreadsheet evaluates and that has no control characters."""
    mark = "'" if _FORMULA.match(value) else ""
    # Where the decimal separator is a comma, spreadsheets split cells at semicolons, quoted or not.
    return mark + safe_line(value).replace(";", ",")
