"""One lane of a race: the name of the run, its progress and figures, and its text."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from mlxspec_app.conversation.figures import Part, fitting, guessed_right
from mlxspec_app.conversation.views import DEFAULT_VIEW, Ink, View
from mlxspec_app.playback.race import Track, acceptance
from mlxspec_app.widgets.chat.explained import Explained
from mlxspec_app.widgets.chat.transcript import Transcript

_NAME_CELLS = 24
_LEAST_BAR_CELLS = 8
_SEPARATOR = " · "


class _Figures(Static, Explained):
    """The rows above the text."""


class RaceLane(Vertical):
    """Shows one run: a progress bar, its figures, and its conversation."""

    DEFAULT_CSS = """
    RaceLane {
        width: 1fr;
        height: 1fr;
        & > Static {
            height: 2;
            padding: 0 1;
            text-wrap: nowrap;
            text-overflow: ellipsis;
            background: $surface;
        }
        & > Transcript { height: 1fr; }
    }
    """

    def __init__(self, track: Track) -> None:
        super().__init__()
        self._track = track
        self._view = DEFAULT_VIEW

    def compose(self) -> ComposeResult:
        yield _Figures()
        yield Transcript()

    def show_text(self) -> None:
        """Show the text of the run so far."""
        self.query_one(Transcript).sync(self._track.state.messages)

    def show_figures(self) -> None:
        width = max(1, self.size.width - 2)
        rows = [_bar_row(self._track, width), self._figures_row(width)]
        self.query_one(Static).update(Content("\n").join(rows))
        self.query_one(Transcript).update_footers()

    def set_view(self, view: View, ink: Ink) -> None:
        self._view = view
        self.query_one(Transcript).set_view(view, ink)

    def _figures_row(self, width: int) -> Content:
        track, stats = self._track, self._track.stats
        drafts = guessed_right(stats.acceptance_rate if stats.rounds else None)
        parts = [
            Part(f"{stats.generation_tps:.1f} tokens/s"),
            Part(drafts if self._view.is_rendered else acceptance(stats), 1),
            Part(f"{track.at:.1f} s"),
        ]
        shown = fitting([*parts, *[Part("done", 2)] * track.is_over], width, len(_SEPARATOR))
        return Content.styled(_SEPARATOR.join(part.text for part in shown), "$spec-muted")


def _bar_row(track: Track, width: int) -> Content:
    name = Content.assemble((track.lane, "$foreground bold"), "  ", (track.name, "$spec-accepted"))
    name = name.truncate(_NAME_CELLS, ellipsis=True)
    count = Content.styled(f"{track.tokens}/{track.total} tok", "$foreground")
    cells = width - name.cell_length - count.cell_length - 4
    if cells < _LEAST_BAR_CELLS:
        return name + Content("  ") + count
    share = track.tokens / track.total if track.total else 0.0
    full, half = divmod(round(share * cells * 2), 2)
    drawn = Content.assemble(
        ("━" * full + "╸" * half, "$foreground"), ("─" * (cells - full - half), "$spec-line")
    )
    return Content("  ").join([name, drawn, count])
