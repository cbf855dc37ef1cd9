"""The legend of the X-ray: one row that says what the colours of its ink mean."""

from textual.content import Content
from textual.widget import Widget

from mlxspec_app.conversation.views import INKS, Ink
from mlxspec_app.themes.looks import LEGENDS, LOOKS
from mlxspec_app.widgets.chat.explained import Explained
from mlxspec_app.widgets.draft.marks import MUTED

_ROUNDS = "shade: round"
_SHARE = "▌ share guessed"
_NEXT = "I: next ink"
_GAP = 2


class LegendStrip(Explained, Widget):
    """Shows the legend of an ink; a click asks for the next one."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._ink = INKS[0]

    def show(self, ink: Ink) -> None:
        self._ink = ink
        self.refresh()

    def render(self) -> Content:
        parts = [Content.styled(f"X-ray: {self._ink.name}", "$foreground")]
        for name, word, _ in LEGENDS[self._ink.name]:
            look = LOOKS[name]
            parts.append(Content.styled(word, f"$spec-{look.colour} {look.weight}".rstrip()))
        more = (_ROUNDS, _SHARE) if self._ink.bands else ()
        for word in (_NEXT, *more):
            if sum(part.cell_length + _GAP for part in parts) + len(word) <= self.size.width:
                parts.append(Content.styled(word, MUTED))
        return Content(" " * _GAP).join(parts)

    async def on_click(self) -> None:
        await self.run_action("screen.ink")
