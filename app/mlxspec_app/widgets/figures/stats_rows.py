"""The rows of the statistics panel, as styled text.

Every figure follows the definitions of `mlxspec.trace.stats`. Acceptance by position has two
denominators, and the field uses both: all drafted rounds, and the rounds that reached the position.
"""

from collections.abc import Sequence

from textual.content import Content

from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Mark
from mlxspec_app.text.bars import spark, split_cells
from mlxspec_app.widgets.draft.lane_rows import MARK_STYLES, SIGNS
from mlxspec_app.widgets.figures.rows import HEADING, MUTED, bar_row, heading
from mlxspec_app.widgets.figures.speed_rows import cost_rows, speed_rows

_MOST_POSITIONS = 8
_KINDS: tuple[Mark, ...] = ("accepted", "corrected", "bonus", "plain")
_FORCED: Mark = "forced"  # shown only if a grammar forced tokens
_TIME_SIGNS = (("draft", "▓", "$foreground"), ("verify", "▒", MUTED), ("host", "░", MUTED))


def stats_rows(reply: Reply | None, width: int) -> list[Content]:
    """Return the rows for a reply, each at most `width` cells wide."""
    if reply is None or not reply.stats.target_forwards:
        return [
            Content.styled("statistics", HEADING),
            Content.styled("appear with the first round", MUTED),
        ]
    blank = [Content("")]
    stats = reply.stats
    sections = [speed_rows(reply, width), _kinds(stats, width)]
    if stats.rounds:
        series = _series(reply.pace.accepted, width)
        sections += [_positions(stats, width), _lengths(stats, width), series]
    sections += [_times(stats, width), cost_rows(reply, width)]
    sections.append([Content.styled("F1 says how each figure is counted", MUTED)])
    rows: list[Content] = []
    for section in sections:
        rows += section + blank
    return rows[:-1]


def _kinds(stats: GenerationStats, width: int) -> list[Content]:
    total = max(1, stats.generated_tokens)
    rows = [heading("who wrote the tokens", f"{stats.generated_tokens} tok", width)]
    for kind in (*_KINDS, *([_FORCED] if stats.kinds.get(_FORCED) else [])):
        number = stats.kinds.get(kind, 0)
        name = f"{SIGNS[kind] or '·'} {kind}".ljust(12)
        style = MARK_STYLES[kind].split(" ")[0]
        figure = (f"{number:>6}", "$foreground")
        rows.append(bar_row(width, (name, style), number / total, style, figure))
    return rows


def _positions(stats: GenerationStats, width: int) -> list[Content]:
    rows = [heading("accepted at position", "all │ reached", width)]
    pairs = zip(stats.acceptance_by_depth, stats.acceptance_given_reached, strict=True)
    for position, (of_all, of_reached) in enumerate(pairs, 1):
        if position > _MOST_POSITIONS:
            more = len(stats.acceptance_by_depth) - _MOST_POSITIONS
            rows.append(Content.styled(f" … {more} more", MUTED))
            break
        figures = (f" {of_all:>5.0%}", "$foreground"), (f" │{of_reached:>5.0%}", MUTED)
        rows.append(bar_row(width, (f"{position:>2}  ", MUTED), of_all, "$spec-accepted", *figures))
    return rows if len(rows) > 1 else [*rows, Content.styled("none was accepted yet", MUTED)]


def _lengths(stats: GenerationStats, width: int) -> list[Content]:
    rows = [heading("accepted length", "rounds", width)]
    counts = _folded(stats.length_counts)
    most = max(counts)
    for length, number in enumerate(counts):
        sign = "+" if length == _MOST_POSITIONS and len(stats.length_counts) > len(counts) else " "
        name, figure = (f"{length:>2}{sign} ", MUTED), (f"{number:>7}", "$foreground")
        style = "$spec-accepted" if length else "$spec-rejected"
        rows.append(bar_row(width, name, number / most, style, figure))
    return rows


def _folded(counts: Sequence[int]) -> list[int]:
    """Return the counts with all lengths beyond the last row in the last row."""
    return [*counts[:_MOST_POSITIONS], sum(counts[_MOST_POSITIONS:])][: len(counts)]


def _series(lengths: Sequence[float], width: int) -> list[Content]:
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    line = spark(lengths, width, max([*lengths, 1.0]))
    return [
        heading("accepted per round", f"mean {mean:.2f} (+1)", width),
        Content.styled(line, "$spec-accepted"),
    ]


def _times(stats: GenerationStats, width: int) -> list[Content]:
    total = max(0.0, stats.total_s - stats.prefill_s)
    shares = [stats.draft_s, stats.target_s]
    shares.append(max(0.0, total - sum(shares)))
    whole = sum(shares) or 1.0
    cells = split_cells(shares, width)
    pieces = [
        (sign * count, style) for (_, sign, style), count in zip(_TIME_SIGNS, cells, strict=True)
    ]
    legend: list[tuple[str, str]] = []
    for (name, sign, style), share in zip(_TIME_SIGNS, shares, strict=True):
        legend += [(f"{sign} ", style), (f"{name} {share / whole:.0%}", MUTED), ("  ", MUTED)]
    note = f"{1e3 * whole / max(1, stats.target_forwards):.1f} ms/round"
    return [
        heading("time", note, width),
        Content.assemble(*pieces),
        Content.assemble(*legend[:-1]),
    ]
