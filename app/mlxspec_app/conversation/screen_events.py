"""What a screen does to the state before its session says so.

An order takes a while to reach the session. Until its first event comes, these keep a second
message from being sent, and keep what is typed meanwhile.
"""

from dataclasses import dataclass

from mlxspec_app.conversation.state import Phase


@dataclass(frozen=True)
class OrderGiven:
    """The session was given something to do; no message can be sent until it says what."""


@dataclass(frozen=True)
class OrderWithdrawn:
    """What was to be done cannot be done, so the session is not asked.

    Attributes:
        phase: The phase before the order.
    """

    phase: Phase


@dataclass(frozen=True)
class MessageQueued:
    """A message waits until the session can take it."""

    text: str


@dataclass(frozen=True)
class QueuedSent:
    """The message that waited longest was sent."""


@dataclass(frozen=True)
class QueueEmptied:
    """No message waits any more: those that did were given back to be edited."""


ScreenEvent = OrderGiven | OrderWithdrawn | MessageQueued | QueuedSent | QueueEmptied
