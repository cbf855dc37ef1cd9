"""What is told of the replies of a server, whoever tells it."""

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
class FiguresTold:
    """What a server says of a reply as a whole, where it tells no rounds.

    Attributes:
        reply: Name of the reply.
        words: How its drafts fared, in words.
        num_tokens: Tokens that it wrote; 0 if not told.
    """

    reply: str
    words: str
    num_tokens: int = 0


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


FeedItem = ReplyEvent | FiguresTold | EventsLost | StreamBroken | StreamBegun
