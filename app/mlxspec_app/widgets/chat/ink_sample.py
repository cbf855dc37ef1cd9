"""A line of sample text in the chosen ink, to show its colours without a model."""

from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.views import XRAY, Ink
from mlxspec_app.widgets.chat.token_message import TokenMessage

_SPANS = (
    Span("Five", "plain", 1, 0.62),
    Span(" words", "accepted", 2, 0.95, 0.9, "suffix"),
    Span(" were", "accepted", 2, 0.97, 0.4, "suffix"),
    Span(" not", "corrected", 2, 0.34),
    Span(" drafted", "accepted", 3, 0.71, 0.93, "eagle3"),
    Span(" by", "accepted", 3, 0.88, 0.09, "eagle3"),
    Span(" a", "bonus", 3, 0.81),
    Span(" small", "accepted", 4, 0.22, 0.8, "model"),
    Span(" model.", "corrected", 4, 0.18),
)


class InkSample(TokenMessage):
    """A message that shows the sample text."""

    def __init__(self, ink: Ink) -> None:
        super().__init__(view=XRAY)
        self.extend(_SPANS)
        self.set_ink(ink)
