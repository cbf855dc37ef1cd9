"""Events of the screen, which change the state before the session reports.

An order takes a while to reach the session. Until its first event comes, these events block a
second message and queue what the user sends.
"""

from dataclasses import dataclass

from mlxspec_app.conversation.state import Phase


@dataclass(frozen=True)
class OrderGiven:
    """The session got an order; no message can be sent until its first event."""


@dataclass(frozen=True)
class OrderWithdrawn:
    """The order is impossible, so the session does not get it; `phase` is the one before it."""

    phase: Phase


@dataclass(frozen=True)
class StopAsked:
    """The user stopped the reply; it ends after this round, or this part of the prompt."""


@dataclass(frozen=True)
class MessageQueued:
    """A message waits until the session is ready."""

    text: str


@dataclass(frozen=True)
class QueuedSent:
    """The oldest queued message was sent."""


@dataclass(frozen=True)
class QueueEmptied:
    """The queued messages went back into the prompt."""


ScreenEvent = OrderGiven | OrderWithdrawn | StopAsked | MessageQueued | QueuedSent | QueueEmptied
