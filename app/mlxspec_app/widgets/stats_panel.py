"""The panel with the figures of a reply.

Every figure follows the definitions of `mlxspec.trace.stats`. Acceptance by position has two
denominators, and the field uses both: all drafted rounds, and the rounds that reached the position.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.figures import speed_words
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Mark
from mlxspec_app.conversation.speeds import plain_tps
from mlxspec_app.text.bars import bar, columns, spark, split_cells
from mlxspec_app.widgets.chat.explained import Explained
from mlxspec_app.widgets.draft.marks import KINDS, MUTED

HEADING = "$foreground bold"
_MOST_POSITIONS = 8
_MOST_WIDTHS = 8
_LATEST = 512  # forwards
_KINDS: tuple[Mark, ...] = ("accepted", "corrected", "bonus", "plain")
_FORCED: Mark = "forced"  # shown only if a grammar forced tokens
_TIME_SIGNS = (("draft", "▓", "$foreground"), ("verify", "▒", MUTED), ("host", "░", MUTED))
_CHART_ROWS = 3
_AXIS_CELLS = 7
_LINES = "▁─▔"  # low, in the middle or high in a row
_NOT_YET = "not measured yet"


def heading(title: str, note: str, width: int) -> Content:
    """Return a row with the title at the left and a note at the right."""
    gap = " " * max(1, width - len(title) - len(note))
    return Content.assemble((title, HEADING), gap, (note, MUTED))


def bar_row(
    width: int, name: tuple[str, str], share: float, style: str, *figures: tuple[str, str]
) -> Content:
    """Return a row with a bar in the room between a name and its figures, each with its style."""
    cells = max(1, width - len(name[0]) - sum(len(figure) for figure, _ in figures))
    return Content.assemble(name, (bar(share, cells), style), *figures)


class _Figures(Explained, Static):
    """The rows of the panel."""


class StatsPanel(VerticalScroll, can_focus=False):
    """Shows the figures of one reply, finished or running."""

    def __init__(self) -> None:
        super().__init__()
        self._num_rows = 0

    def compose(self) -> ComposeResult:
        yield _Figures(id="figures")

    def show(self, reply: Reply | None) -> None:
        width = max(20, self.scrollable_content_region.width)
        rows = stats_rows(reply, width)
        is_as_high = len(rows) == self._num_rows  # then no new layout is needed
        self._num_rows = len(rows)
        self.query_one("#figures", Static).update(Content("\n").join(rows), layout=not is_as_high)


def stats_rows(reply: Reply | None, width: int) -> list[Content]:
    """Return the rows for a reply, each at most `width` cells wide."""
    if reply is None or not reply.stats.target_forwards:
        note = Content.styled("appear with the first round", MUTED)
        return [Content.styled("statistics", HEADING), note]
    stats = reply.stats
    sections = [speed_rows(reply, width), _kinds(stats, width)]
    if stats.rounds:
        sections += [_positions(stats, width), _lengths(stats, width)]
        sections.append(_series(reply.pace.accepted, width))
    sections += [_times(stats, width), cost_rows(reply, width)]
    sections.append([Content.styled("F1 says how each figure is counted", MUTED)])
    return [row for section in sections for row in (*section, Content(""))][:-1]


def _kinds(stats: GenerationStats, width: int) -> list[Content]:
    total = max(1, stats.generated_tokens)
    rows = [heading("who wrote the tokens", f"{stats.generated_tokens} tok", width)]
    for kind in (*_KINDS, *([_FORCED] if stats.kinds.get(_FORCED) else [])):
        number = stats.kinds.get(kind, 0)
        name = f"{KINDS[kind].sign or '·'} {kind}".ljust(12)
        style = KINDS[kind].style.split(" ")[0]
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
    # all lengths beyond the last row are in the last row
    counts = [*stats.length_counts[:_MOST_POSITIONS], sum(stats.length_counts[_MOST_POSITIONS:])]
    counts = counts[: len(stats.length_counts)]
    most = max(counts)
    for length, number in enumerate(counts):
        sign = "+" if length == _MOST_POSITIONS and len(stats.length_counts) > len(counts) else " "
        name, figure = (f"{length:>2}{sign} ", MUTED), (f"{number:>7}", "$foreground")
        style = "$spec-accepted" if length else MUTED
        rows.append(bar_row(width, name, number / most, style, figure))
    return rows


def _series(lengths: Sequence[float], width: int) -> list[Content]:
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    line = spark(lengths, width, max([*lengths, 1.0]))
    title = heading("accepted per round", f"mean {mean:.2f} (+1)", width)
    return [title, Content.styled(line, "$spec-accepted")]


def _times(stats: GenerationStats, width: int) -> list[Content]:
    total = max(0.0, stats.total_s - stats.prefill_s)
    shares = [stats.draft_s, stats.target_s]
    shares.append(max(0.0, total - sum(shares)))
    whole = sum(shares) or 1.0
    cells = split_cells(shares, width)
    drawn, legend = Content(""), []
    for (name, sign, style), share, count in zip(_TIME_SIGNS, shares, cells, strict=True):
        drawn += Content.styled(sign * count, style)
        words = (f"{name} {share / whole:.0%}", MUTED)
        legend.append(Content.assemble((f"{sign} ", style), words))
    note = f"{1e3 * whole / max(1, stats.target_forwards):.1f} ms/round"
    return [heading("time", note, width), drawn, Content("  ").join(legend)]


def speed_rows(reply: Reply, width: int) -> list[Content]:
    """Return a chart of tokens/s over the time of a reply, with a line at the plain speed."""
    plain = plain_tps(reply)
    values = reply.pace.speeds(reply.stats.prefill_s, max(1, width - _AXIS_CELLS))
    top = max([*values, plain])
    line_row, line_sign = _line_at(plain / top) if plain else (-1, "")
    ahead = "$spec-accepted" if plain else "$foreground"
    styles = [ahead if value >= plain else "$spec-corrected" for value in values]
    gain, speed = speed_words(reply), f"{reply.stats.generation_tps:.1f}"
    rows = [heading("tokens/s", f"{speed} \u00b7 {gain}" if gain else speed, width)]
    for number, signs in enumerate(columns(values, _CHART_ROWS, top)):
        cells = list(zip(signs, styles, strict=True))
        label = f"{top:.1f}" if number == 0 and values else ""
        if line_row == number:
            cells = [_crossed(sign, style, line_sign) for sign, style in cells]
            label = f"{plain:.1f}"
        rows.append(Content.assemble(*cells, (label.rjust(_AXIS_CELLS), MUTED)))
    legend = "─ plain decoding at the same time" if plain else f"plain decoding: {_NOT_YET}"
    return [*rows, Content.styled(legend, MUTED)]


def cost_rows(reply: Reply, width: int) -> list[Content]:
    """Return what forwards of the usual widths took, with a mark at the width in use."""
    rows_used, found = reply.pace.rows_in_use, defaultdict(list)
    for rows_read, ms in reply.pace.forwards[-_LATEST:]:
        found[rows_read].append(ms)
    usual = sorted(found, key=lambda rows: (rows > 1, -len(found[rows])))[:_MOST_WIDTHS]
    times = {rows: median(found[rows]) for rows in sorted(usual)}
    used = f" \u00b7 {rows_used} in use" if rows_used else ""
    rows = [heading("cost by rows", f"\u00f7 1 row{used}", width)]
    one, most = times.get(1, 0.0), max(times.values(), default=0.0)
    for rows_read, ms in times.items():
        is_used = rows_read == rows_used
        name = (f"{'▸' if is_used else ' '}{rows_read:>3}  ", "$foreground" if is_used else MUTED)
        style = "$spec-accepted" if is_used else MUTED
        ratio = f"{ms / one:>6.2f}" if one else " " * 6
        figures = (ratio, "$foreground"), (f"{ms:>7.1f} ms", MUTED)
        rows.append(bar_row(width, name, ms / most if most else 0.0, style, *figures))
    return rows


def _line_at(share: float) -> tuple[int, str]:
    """Return the row of a line at a share of the chart's height, from the top, and its sign."""
    height = min(1.0, share) * _CHART_ROWS
    below = min(_CHART_ROWS - 1, int(height))
    sign = _LINES[min(len(_LINES) - 1, int((height - below) * len(_LINES)))]
    return _CHART_ROWS - 1 - below, sign


def _crossed(sign: str, style: str, line: str) -> tuple[str, str]:
    """Return a cell with the line: drawn over a full cell, in place of an empty one."""
    if sign == "█":
        return line, f"$background on {style}"
    return (line, MUTED) if sign == " " else (sign, style)
