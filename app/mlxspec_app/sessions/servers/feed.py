"""Reads the live feed of a server: events of the replies that it writes, over HTTP.

`GET /v1/events` is a stream of server-sent events; see `docs/serving.md`. A stream that is cut off
is asked for again.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from mlxspec.errors import ServerError, TraceError
from mlxspec.trace.events import Event
from mlxspec.trace.file import event_from_record

DEFAULT_URL = "http://127.0.0.1:8080"
_EVENTS = "/v1/events"
_RETRY_S = 2.0
_SILENCE_S = 30.0  # a server says more often that it is alive
_STREAM = "text/event-stream"
_NEEDED = "mlxspec watch needs `mlxspec serve`: other servers tell no events of their replies"


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


class ServerFeed:
    """The feed of one server.

    Attributes:
        url: Address of the server, without a path of its API.
    """

    def __init__(
        self, url: str = DEFAULT_URL, key: str = "", wait: Callable[[float], object] = time.sleep
    ) -> None:
        """Check the address; nothing is asked yet.

        Args:
            url: Address of the server; http:// and a last /v1 may be left out.
            key: Its API key.
            wait: Waits some seconds.

        Raises:
            ValueError: The address or the key cannot be one.
        """
        self.url = _checked(url)
        if not (key.isascii() and key.isprintable()):
            raise ValueError("an API key has letters, digits and signs of ASCII: give another one")
        self._headers = {"Accept": _STREAM} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._has_key, self._wait = bool(key), wait

    def check(self) -> None:
        """Ask the server for the feed, and leave it.

        Raises:
            ServerError: There is no server, it is another one, or it needs another key.
        """
        connection, _ = self._asked()
        connection.close()

    def items(self) -> Iterator[FeedItem]:
        """Yield what the server tells, for ever."""
        while True:
            try:
                connection, stream = self._asked()
                with closing(connection):
                    yield StreamBegun()
                    yield from _items_of(stream)
                why = "the server ended the stream"
            except (OSError, HTTPException) as error:
                why = f"the stream was cut off: {error}"
            except ServerError as error:
                why = str(error)
            yield StreamBroken(why)
            self._wait(_RETRY_S)

    def _asked(self) -> tuple[HTTPConnection, HTTPResponse]:
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_SILENCE_S)
        try:
            connection.request("GET", parts.path + _EVENTS, headers=self._headers)
            response = connection.getresponse()
            self._check(response)
        except HTTPException as error:
            connection.close()
            what = type(error).__name__
            raise ServerError(f"what listens at {self.url} is no web server ({what})") from error
        except OSError as error:
            connection.close()
            why = error.strerror or str(error) or type(error).__name__
            start = "start one with `mlxspec serve`, or name the address of another"
            raise ServerError(f"no server answers at {self.url}: {why}; {start}") from error
        except ServerError:
            connection.close()
            raise
        return connection, response

    def _check(self, response: HTTPResponse) -> None:
        kind = response.headers.get_content_type()
        if response.status == 200 and kind == _STREAM:
            return
        if response.status in (401, 403):
            what = "refuses this key: give its own" if self._has_key else "needs its key: add it"
            raise ServerError(f"{self.url} {what} with --api-key KEY")
        if response.status == 503 and (message := _message(response)):
            raise ServerError(f"{self.url}: {message}")
        got = f"status {response.status}" if response.status != 200 else kind
        raise ServerError(f"{self.url}{_EVENTS} gave {got}, not a stream of events; {_NEEDED}")


def _checked(url: str) -> str:
    whole = url if "://" in url else f"http://{url}"
    allowed = f"an address is one such as {DEFAULT_URL}; got {url!r}"
    try:
        parts = urlsplit(whole)
        is_address = parts.scheme in ("http", "https") and parts.hostname
        _ = parts.port  # raises where it is none
    except ValueError as error:
        raise ValueError(f"{allowed}: {error}") from error
    if not is_address or not whole.isascii() or any(map(str.isspace, whole)):
        raise ValueError(allowed)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _message(response: HTTPResponse) -> str:
    try:
        return str(json.loads(response.read(10_000))["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _items_of(stream: HTTPResponse) -> Iterator[FeedItem]:
    """Yield the events of a stream of server-sent events; its comments say nothing."""
    name = ""
    for line in stream:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: ") and (item := _item(name, text.removeprefix("data: "))):
            yield item


def _item(name: str, text: str) -> FeedItem | None:
    """Return what an event says; None for a kind that this version does not know."""
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
