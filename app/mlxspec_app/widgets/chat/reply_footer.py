"""The rows below a reply: the progress of the prefill or its figures, its proof and its error."""

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from mlxspec_app.conversation.figures import (
    GUESSED,
    Part,
    count,
    fitting,
    quiet_figures,
    reply_figures,
)
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.views import DEFAULT_VIEW, View
from mlxspec_app.text.bars import meter
from mlxspec_app.text.safe_text import safe_text
from mlxspec_app.widgets.chat.explained import Explained

_METER_CELLS = 16
_SEPARATOR = " · "
_PROOF_SIGNS = {
    True: ("=", "$spec-accepted"),
    False: ("≠", "$spec-corrected"),
    None: ("…", "$spec-muted"),
}


class ReplyFooter(Explained, Widget):
    """Shows the figures of one reply in a row, and its proof and error below, if any.

    Outside the X-ray there are two figures in plain words; the tint of one is that of guessed
    words.
    """

    DEFAULT_CSS = """
    ReplyFooter { height: auto; padding: 0 1 0 2; color: $spec-muted; }
    """
    ALLOW_SELECT = True

    def __init__(self, reply: Reply, view: View = DEFAULT_VIEW) -> None:
        super().__init__()
        self.reply = reply
        self._view = view
        self._shown: tuple[list[Part], str, str] = ([], "", "")
        self._height = 0

    def set_view(self, view: View) -> None:
        self._view = view
        self.refresh(layout=True)

    def update(self) -> None:
        """Redraw if the contents have changed."""
        news = (self._parts(), self.reply.error, self.reply.proof)
        if news == self._shown:
            return
        self._shown = news
        self.refresh(layout=self._count_rows(self.size.width) != self._height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._height = self._count_rows(width)
        return self._height

    def render(self) -> Content:
        return self._content(self.size.width)

    def _count_rows(self, width: int) -> int:
        return len(self._content(width).wrap(max(1, width)))

    def _content(self, width: int) -> Content:
        parts = fitting(self._parts(), width, len(_SEPARATOR))
        words = (Content.styled(part.text, self._style(part)) for part in parts)
        figures = Content.styled(_SEPARATOR, "$spec-muted").join(words)
        rows = [figures] if parts else []
        if self.reply.proof:
            rows.append(_proof(self.reply))
        if self.reply.error:
            rows.append(_error(self.reply))
        return Content("\n").join(rows)

    def _style(self, part: Part) -> str:
        is_tinted = self._view.is_tinted and part.text.endswith(GUESSED)
        return "$spec-guess" if is_tinted else "$spec-muted"

    def _parts(self) -> list[Part]:
        reply = self.reply
        figures = quiet_figures(reply) if self._view.is_rendered else reply_figures(reply)
        if figures or reply.is_finished or reply.prefill is None:
            return figures
        done, total = reply.prefill.done, reply.prefill.total
        share = done / total if total > 0 else 0.0
        reused = f", {count(reply.prefill.reused)} still cached" if reply.prefill.reused else ""
        return [
            Part("reading the prompt"),
            Part(meter(share, _METER_CELLS), 2),
            Part(f"{count(done)} of {count(total)} tokens{reused}", 1),
        ]


def _proof(reply: Reply) -> Content:
    sign, style = _PROOF_SIGNS[reply.is_proven]
    return Content.assemble((f"{sign} ", f"{style} bold"), (safe_text(reply.proof), style))


def _error(reply: Reply) -> Content:
    return Content.assemble(
        ("✗ ", "$spec-rejected bold"),
        (safe_text(reply.error), "$spec-rejected"),
        ("  Ctrl+R tries again", "$spec-muted"),
    )
