"""Reads the live feed of `mlxspec serve`: the events of its replies, over HTTP.

`GET /v1/events` is a stream of server-sent events; see `docs/serving.md`. After a lost connection
the feed reconnects.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse

from mlxspec.errors import ServerError, TraceError
from mlxspec.trace.events import Event
from mlxspec.trace.file import event_from_record
from mlxspec_app.sessions.servers.address import (
    ServerAddress,
    is_stream,
    sent_events,
    told_error,
)

_EVENTS = "/v1/events"
_RETRY_S = 2.0
_NEEDED = "only `mlxspec serve` streams the events of its replies: give its address"


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


class ServerFeed:
    """The feed of one server.

    Attributes:
        url: Address of the server, without a path of its API.
    """

    def __init__(self, server: ServerAddress, wait: Callable[[float], object] = time.sleep) -> None:
        """Store the server without a request; `wait` sleeps for some seconds."""
        self.url = server.url
        self._server, self._wait = server, wait
        self._opened: HTTPResponse | None = None

    def open(self) -> None:
        """Request the feed; `items` yields what the server sends from now on.

        Raises:
            ServerError: No server answers, it is of another kind, or it needs another key.
        """
        self._opened = self._asked()

    def items(self) -> Iterator[FeedItem]:
        """Yield the items of the feed, without end."""
        while True:
            try:
                stream, self._opened = self._opened or self._asked(), None
                with stream:
                    yield StreamBegun()
                    for name, text in sent_events(stream):
                        if item := _item(name, text):
                            yield item
                why = "the server ended the stream"
            except (OSError, HTTPException) as error:
                why = f"the stream was cut off: {error}"
            except ServerError as error:
                why = str(error)
            yield StreamBroken(why)
            self._wait(_RETRY_S)

    def _asked(self) -> HTTPResponse:
        response = self._server.ask(_EVENTS)
        if is_stream(response):
            return response
        with response:
            if response.status == 503 and (message := told_error(response)):
                raise ServerError(f"{self.url}: {message}")
            kind = response.headers.get_content_type()
        got = f"status {response.status}" if response.status != 200 else kind
        raise ServerError(f"{self.url}{_EVENTS} gave {got}, not a stream of events; {_NEEDED}")


def _item(name: str, text: str) -> FeedItem | None:
    """Return the item of an event; None for a kind that this version does not support."""
    if name not in ("reply", "lost"):
        return None
    try:
        data = json.loads(text)
        if name == "lost":
            return EventsLost(int(data["num_lost"]))
        event = event_from_record(data["event"])
        return ReplyEvent(str(data["model"]), str(data["reply"]), event)
    except (TraceError, ValueError, KeyError, TypeError):
        return EventsLost(1)
