"""The items of a server's live feed."""

from dataclasses import dataclass

from mlxspec.trace.events import Event


@dataclass(frozen=True)
class ReplyEvent:
    """An event of a reply, with the names of model and reply."""

    model: str
    reply: str
    event: Event


@dataclass(frozen=True)
class EventsLost:
    """Events that the server dropped, or that this version cannot read."""

    count: int


@dataclass(frozen=True)
class StreamBroken:
    """The connection was lost; the feed reconnects, and replies continue unseen."""

    why: str


@dataclass(frozen=True)
class StreamBegun:
    """The stream began."""


FeedItem = ReplyEvent | EventsLost | StreamBroken | StreamBegun
