"""The heading of a section in the statistics panel."""

from textual.content import Content

HEADING = "$foreground bold"
MUTED = "$spec-muted"


def heading(title: str, note: str, width: int) -> Content:
    """Return a row with the title at the left and a note at the right."""
    gap = " " * max(1, width - len(title) - len(note))
    return Content.assemble((title, HEADING), gap, (note, MUTED))
