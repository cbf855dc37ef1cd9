"""Rows of the what-if table: a column for each k, and a sentence on the chosen k."""

from collections.abc import Sequence

from textual.content import Content

from mlxspec_app.playback.what_if import MOST_DRAFTED, Expectation, Outlook, best

_LABEL_CELLS = 10
_COLUMN_CELLS = 6
_MUTED = "$spec-muted"
_FIGURE = "$foreground"
_CHOSEN = "reverse"
_BEST = "$spec-accepted bold"
_UNKNOWN = "·"


def what_if_rows(runs: Sequence[tuple[str, Outlook]], k: int, width: int) -> list[Content]:
    """Return the rows for the named runs, with the column of `k` marked.

    If `width`, in cells, is too small, only the columns around `k` are shown.
    """
    shown = _columns(k, width)
    rows = [_row("drafted k", [_head(one, k) for one in shown])]
    for name, outlook in runs:
        rows += _run_rows(name, outlook, shown, k)
    rows += [_sentence(name, outlook, k) for name, outlook in runs if outlook.expected]
    return rows


def _columns(k: int, width: int) -> range:
    count = min(MOST_DRAFTED, max(1, (width - _LABEL_CELLS) // _COLUMN_CELLS))
    first = min(max(1, k - count // 2), MOST_DRAFTED - count + 1)
    return range(first, first + count)


def _head(one: int, k: int) -> tuple[str, str]:
    return (f"[{one}]", f"{_FIGURE} bold") if one == k else (f"{one} ", _MUTED)


def _run_rows(name: str, outlook: Outlook, shown: range, k: int) -> list[Content]:
    if not outlook.expected:
        line = f"{name} has no drafts: there is no estimate"
        return [Content.styled(line, _MUTED)]
    fastest = best(outlook.expected)
    by_k = {one.k: one for one in outlook.expected}
    columns = [by_k.get(one) for one in shown]
    words = {
        f"{name} tok/rd": [_tokens(one) for one in columns],
        "  ms/rd": [_ms(one) for one in columns],
        " tokens/s": [_tps(one) + ("*" if one and one == fastest else " ") for one in columns],
    }
    return [
        _row(
            label,
            [(text, _style(one, fastest, k)) for text, one in zip(texts, columns, strict=True)],
        )
        for label, texts in words.items()
    ]


def _style(one: Expectation | None, fastest: Expectation | None, k: int) -> str:
    if one is None:
        return _MUTED
    base = _BEST if one == fastest else _FIGURE
    return f"{base} {_CHOSEN}" if one.k == k else base


def _row(label: str, cells: Sequence[tuple[str, str]]) -> Content:
    parts = [(label.ljust(_LABEL_CELLS), _MUTED)]
    for text, style in cells:
        parts += [(" " * max(0, _COLUMN_CELLS - len(text)), ""), (text, style)]
    return Content.assemble(*parts)


def _sentence(name: str, outlook: Outlook, k: int) -> Content:
    one = next((found for found in outlook.expected if found.k == k), None)
    if one is None:
        most = len(outlook.expected)
        text = f"{name}, k = {k}: this trace verified no chain of more than {most}"
        return Content.styled(text, _MUTED)
    if one.tps is None:
        line = f"{one.tokens:.2f} tokens a round; no width around this one was measured"
    else:
        line = f"{one.tps:.1f} tokens/s, {one.tokens:.2f} tokens in {_ms(one).strip()} ms"
    return Content.assemble(
        (f"{name}, k = {k}: ", _MUTED),
        (line, _FIGURE),
        (f"; it ran at {outlook.tps:.1f} tokens/s", _MUTED),
    )


def _tokens(one: Expectation | None) -> str:
    return f"{one.tokens:.2f} " if one is not None else f"{_UNKNOWN} "


def _ms(one: Expectation | None) -> str:
    if one is None or one.round_ms is None:
        return f"{_UNKNOWN} "
    return f"{'~' if one.is_between else ''}{one.round_ms:.0f} "


def _tps(one: Expectation | None) -> str:
    return f"{one.tps:.1f}" if one is not None and one.tps is not None else _UNKNOWN
