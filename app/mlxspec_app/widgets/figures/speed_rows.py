"""Rows on the speed of a reply over time against plain decoding, and on the cost curve.

Both use measurements on this machine, and say so while there are none.
"""

from textual.content import Content

from mlxspec_app.conversation.figures import plain_line, times_plain
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.text.bars import columns
from mlxspec_app.widgets.figures.rows import MUTED, bar_row, heading

_CHART_ROWS = 3
_AXIS_CELLS = 7
_LINES = "▁─▔"  # low, in the middle or high in a row
_NOT_YET = "not measured yet"


def speed_rows(reply: Reply, width: int) -> list[Content]:
    """Return a chart of tokens/s over the time of a reply, with a line at the plain speed."""
    plain = reply.plain.tps if reply.plain is not None else 0.0
    values = reply.pace.speeds(reply.stats.prefill_s, max(1, width - _AXIS_CELLS))
    top = max([*values, plain])
    line_row, line_sign = _line_at(plain / top) if plain else (-1, "")
    ahead = "$spec-accepted" if plain else "$foreground"
    styles = [ahead if value >= plain else "$spec-corrected" for value in values]
    gain, speed = times_plain(reply), f"{reply.stats.generation_tps:.1f}"
    rows = [heading("tokens/s", f"{speed} \u00b7 {gain}" if gain else speed, width)]
    for number, signs in enumerate(columns(values, _CHART_ROWS, top)):
        cells = list(zip(signs, styles, strict=True))
        label = f"{top:.1f}" if number == 0 and values else ""
        if line_row == number:
            cells = [_crossed(sign, style, line_sign) for sign, style in cells]
            label = f"{plain:.1f}"
        rows.append(Content.assemble(*cells, (label.rjust(_AXIS_CELLS), MUTED)))
    legend = f"─ {plain_line(reply.plain)}" if reply.plain else f"plain forward: {_NOT_YET}"
    return [*rows, Content.styled(legend, MUTED)]


def cost_rows(reply: Reply, width: int) -> list[Content]:
    """Return the cost of each measured width in plain forwards, with a mark at the width in use."""
    cost, rows_used = reply.cost, reply.pace.rows_in_use
    if cost is None:
        return [heading("cost by rows", _NOT_YET, width)]
    # Only some widths were measured: mark the next wider one.
    in_use = next((w for w in cost.widths if w >= (rows_used or 0)), cost.widths[-1])
    used = f" \u00b7 {rows_used} in use" if rows_used else ""
    rows = [heading("cost by rows", f"\u00f7 1 row{used}", width)]
    most = max(cost.ratios)
    for rows_read, ratio, ms in zip(cost.widths, cost.ratios, cost.ms, strict=True):
        is_used = rows_used is not None and rows_read == in_use
        name = (f"{'▸' if is_used else ' '}{rows_read:>3}  ", "$foreground" if is_used else MUTED)
        style = "$spec-accepted" if is_used else MUTED
        figures = (f"{ratio:>6.2f}", "$foreground"), (f"{ms:>7.1f} ms", MUTED)
        rows.append(bar_row(width, name, ratio / most, style, *figures))
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
