"""The rows around messages: figures of a reply, versions, and the number of earlier messages."""

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from mlxspec_app.conversation.figures import (
    GUESSED,
    RATIO,
    Part,
    count,
    fitting,
    quiet_figures,
    reply_figures,
)
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.views import CALM, View
from mlxspec_app.store.records import Version
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
    """Shows the figures of one reply in a row, and its proof and error below, if any."""

    ALLOW_SELECT = True

    def __init__(self, reply: Reply, view: View = CALM) -> None:
        super().__init__()
        self.reply = reply
        self._view = view
        self._shown: tuple[list[Part], str, str] = ([], "", "")
        self._height = 0

    def set_view(self, view: View) -> None:
        self._view = view
        self.refresh(layout=True)

    def update(self) -> None:
        news = (self._parts(), self.reply.error, self.reply.proof)
        if news == self._shown:
            return
        self._shown = news
        self.refresh(layout=self._count_rows(self.size.width) != self._height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._height = self._count_rows(width)
        return self._height

    def _count_rows(self, width: int) -> int:
        return len(self._content(width).wrap(max(1, width)))

    def render(self) -> Content:
        return self._content(self.size.width)

    def _content(self, width: int) -> Content:
        parts = fitting(self._parts(), width, len(_SEPARATOR))
        words = (Content.styled(part.text, self._style(part)) for part in parts)
        figures = Content.styled(_SEPARATOR, "$spec-muted").join(words)
        rows = [figures] if parts else []
        if self.reply.proof:
            sign, style = _PROOF_SIGNS[self.reply.is_proven]
            said = (safe_text(self.reply.proof), style)
            rows.append(Content.assemble((f"{sign} ", f"{style} bold"), said))
        if self.reply.error:
            why = (safe_text(self.reply.error), "$spec-rejected")
            key = ("  Ctrl+R tries again", "$spec-muted")
            rows.append(Content.assemble(("✗ ", "$spec-rejected bold"), why, key))
        return Content("\n").join(rows)

    def _style(self, part: Part) -> str:
        """Return the style of a figure; the share of guessed words has their tint."""
        if RATIO in part.text:
            return "$foreground bold"
        is_tinted = self._view.is_rendered and part.text.endswith(GUESSED)
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


class VersionMark(Static):
    """Shows `< 2/3 >`; a click on its left or right half requests another version."""

    def __init__(self, message: int, version: Version) -> None:
        super().__init__()
        self._message = message
        self.show(version)

    def show(self, version: Version) -> None:
        before = "<" if version.number > 1 else " "
        after = ">" if version.number < version.count else " "
        self.update(Content(f"{before} {version.number}/{version.count} {after}"))

    async def on_click(self, event: events.Click) -> None:
        step = -1 if event.x < self.size.width / 2 else 1
        await self.run_action(f"screen.version_of({self._message}, {step})")


class EarlierRow(Static):
    """Shows the number of earlier messages; hidden if there are none."""

    ALLOW_SELECT = False

    class Requested(Message):
        """The reader requests earlier messages."""

    def show(self, num_messages: int) -> None:
        self.display = num_messages > 0
        self.update(Content(f"↑ {count(num_messages)} earlier messages"))

    def on_click(self) -> None:
        self.post_message(self.Requested())
