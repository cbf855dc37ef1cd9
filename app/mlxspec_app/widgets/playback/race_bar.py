"""The last rows of a race: the clock, who leads, and whether both texts agree."""

from textual.content import Content
from textual.widget import Widget

from mlxspec_app.conversation.figures import Part, fitting
from mlxspec_app.playback.compare import Agreement
from mlxspec_app.playback.race import Race, lead

_GAP = "   "
_SIGNS = {
    "identical": ("✓", "$spec-accepted"),
    "differs": ("✗", "$spec-rejected"),
    "sampled": ("≈", "$foreground"),
    "incomparable": ("!", "$spec-corrected"),
}


class RaceBar(Widget):
    """Two rows below the lanes; the agreement is visible from the start."""

    DEFAULT_CSS = """
    RaceBar {
        height: auto;
        max-height: 5;
        padding: 0 1;
        border-top: solid $spec-line;
    }
    """

    def __init__(self, race: Race, agreement: Agreement) -> None:
        super().__init__()
        self._race = race
        self._agreement = agreement

    def render(self) -> Content:
        return Content("\n").join([self._position_row(), agreement_row(self._agreement)])

    def _position_row(self) -> Content:
        """Return the clock in one row; a second row would move the agreement."""
        race, width = self._race, max(1, self.size.width)
        now = min(race.playhead.now, race.duration)
        sign = "‖ paused" if race.playhead.paused else "▶"
        parts = [
            Part("■ end" if race.is_over else f"{sign} {race.playhead.speed:g}\u00d7"),
            Part(f"{now:.1f} of {race.duration:.1f} s", 1),
            Part(lead(race.tracks)),
        ]
        shown = fitting(parts, width, len(_GAP))
        styles = {0: "$foreground", 1: "$spec-muted"}
        row = Content(_GAP).join(Content.styled(part.text, styles[part.rank]) for part in shown)
        return row.truncate(width, ellipsis=True)


def agreement_row(agreement: Agreement) -> Content:
    """Return the agreement with its sign."""
    sign, style = _SIGNS[agreement.kind]
    return Content.assemble((f"{sign} ", f"{style} bold"), (agreement.line, style))
