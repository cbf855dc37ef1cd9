"""What the live feed of a server says of its replies."""

from dataclasses import dataclass

from mlxspec.trace.events import Event


@dataclass(frozen=True)
class ReplyEvent:
    """An event of a reply.

    Attributes:
        model: Name of the model.
        reply: Name of the reply.
        event: The event.
    """

    model: str
    reply: str
    event: Event


@dataclass(frozen=True)
class EventsLost:
    """Events that the server dropped, or that this version cannot read."""

    count: int


@dataclass(frozen=True)
class StreamBroken:
    """The stream was cut off, and is asked for again; replies go on unseen."""

    why: str


@dataclass(frozen=True)
class StreamBegun:
    """The stream began."""


FeedItem = ReplyEvent | EventsLost | StreamBroken | StreamBegun
