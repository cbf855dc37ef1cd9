"""The protocol of a session: orders go in, and events, all that the app sees of it, come out."""

from collections.abc import Sequence
from typing import Protocol

from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.conversation.orders import Order
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.sessions.reply_settings import ReplySettings


class Session(Protocol):
    """A conversation that the app can drive. No method blocks, except `close`."""

    @property
    def busy(self) -> bool:
        """Whether an order is running or waiting."""

    @property
    def settings(self) -> ReplySettings | None:
        """The settings of the next reply; None for a recording, which has none."""

    def start(self) -> None:
        """Start to load; `SessionReady` or `SessionFailed` follows."""

    def send(self, order: Order) -> None:
        """Carry out an order after those before it."""

    def notify(self, message: str) -> None:
        """Send a notice as an event; safe from any thread."""

    def drain(self) -> Sequence[AnyEvent | ChatState]:
        """Return the events since the last call, oldest first.

        A state among them replaces the one on the screen: a recording was moved back.
        """

    def close(self) -> None:
        """Stop, free the model and wait until that is done; safe to call twice."""
