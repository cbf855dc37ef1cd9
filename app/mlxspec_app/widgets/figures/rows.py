"""Rows of the sections of figures: a heading, and a bar between a name and its figures."""

from textual.content import Content

from mlxspec_app.text.bars import bar

HEADING = "$foreground bold"
MUTED = "$spec-muted"


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
