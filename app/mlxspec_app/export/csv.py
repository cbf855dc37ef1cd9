"""One row for every target forward, for spreadsheets and data frames.

The text is left out: what a model wrote does not belong into cells that a spreadsheet computes.
Names of drafters come from the recording, which may be anybody's. A cell of text that a spreadsheet
would take for a formula begins with an apostrophe, which makes it text there; a program has to take
it off. Numbers stay numbers, negative ones too.
Which beginnings are formulas: https://owasp.org/www-community/attacks/CSV_Injection
"""

import csv
import re
from io import StringIO

from mlxspec.trace.events import DraftVerified
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.export.recording import Recording
from mlxspec_app.text.safe_text import safe_line

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # the wide signs count too
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
are the drafters whose nodes were kept, with their number."""


def render(recording: Recording) -> str:
    """Return the rounds of all replies as comma-separated values with a row of names."""
    out = StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for number, reply in enumerate(recording.replies, 1):
        table.writerows([number, *_values(round_)] for round_ in reply.rounds)
    return out.getvalue()


def _values(round_: Round) -> list[object]:
    verdict = round_.verdict
    kept = [source for source in round_.sources if source]
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
        _text(" ".join(f"{source}:{kept.count(source)}" for source in sorted(set(kept)))),
    ]


def _text(value: str) -> str:
    """Return a cell that no spreadsheet computes and no terminal obeys."""
    mark = "'" if _FORMULA.match(value) else ""
    # where a comma is the sign of decimals, cells are split at semicolons, quoted or not
    return mark + safe_line(value).replace(";", ",")
