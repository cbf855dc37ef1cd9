"""A server over HTTP: requests to it, the live feed of `mlxspec serve`, and prompts for it.

A prompt is sent over OpenAI's chat completions: once, or twice for a race.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from mlxspec.errors import ServerError, TraceError
from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished, TurnStarted
from mlxspec.trace.file import event_from_record

DEFAULT_URL = "http://127.0.0.1:8080"
_STREAM_TYPE = "text/event-stream"
_SILENCE_S = 30.0  # a feed sends a sign of life more often
_EVENTS = "/v1/events"
_RETRY_S = 2.0
_NEEDED = "only `mlxspec serve` streams the events of its replies: give its address"
_CHAT = "/v1/chat/completions"
_QUEUE_S = 1800.0  # a reply may wait behind many others
_RUNS = {"with guesses": {}, "model alone": {"num_draft_tokens": 0}}
_GREEDY = {"temperature": 0, "seed": 0}


class ServerAddress:
    """A server and its API key; its `url` is without a path of its API."""

    def __init__(self, url: str = DEFAULT_URL, key: str = "") -> None:
        """Check address and key without a request; `url` may lack http://, or end with /v1."""
        self.url = _checked(url)
        if not (key.isascii() and key.isprintable()):
            raise ValueError("an API key has letters, digits and signs of ASCII: give another one")
        self._has_key = bool(key)
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        self._headers = {"Accept": _STREAM_TYPE, "Connection": "close", **authorization}

    def ask(
        self, path: str, body: Mapping[str, Any] | None = None, silence_s: float = _SILENCE_S
    ) -> HTTPResponse:
        """Request a path and return the response, which the caller closes.

        The caller also checks the status, except 401 and 403. A `body` is posted as JSON; None
        sends a GET. After `silence_s` seconds of silence the connection counts as lost. No answer
        of a web server raises ServerError.
        """
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=silence_s)
        method, sent, headers = "GET", None, self._headers
        if body is not None:
            method, sent = "POST", json.dumps(body).encode()
            headers = headers | {"Content-Type": "application/json"}
        try:
            connection.request(method, parts.path + path, sent, headers)
            response = connection.getresponse()  # the connection lives as long as this
        except HTTPException as error:
            what = type(error).__name__
            raise ServerError(f"what listens at {self.url} is no web server ({what})") from error
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            start = "start one with `mlxspec serve`, or name the address of another"
            raise ServerError(f"no server answers at {self.url}: {why}; {start}") from error
        if response.status in (401, 403):
            response.close()
            what = "refuses this key: give its own" if self._has_key else "needs its key: add it"
            raise ServerError(f"{self.url} {what} with --api-key KEY")
        return response


def _is_stream(response: HTTPResponse) -> bool:
    return response.status == 200 and response.headers.get_content_type() == _STREAM_TYPE


def _told_error(response: HTTPResponse) -> str:
    """Return the error message in a response that is not a stream, or ""."""
    try:
        found = json.loads(response.read(10_000))
    except (OSError, HTTPException, ValueError):
        return ""
    error = found.get("error", found.get("detail", "")) if isinstance(found, dict) else ""
    return str(error.get("message", "") if isinstance(error, dict) else error)


def _sent_events(stream: HTTPResponse) -> Iterator[tuple[str, str]]:
    """Yield name and data of each event of a stream, without comments."""
    name = ""
    for line in stream:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith("event:"):
            name = text.removeprefix("event:").lstrip(" ")
        elif text.startswith("data:"):
            yield name, text.removeprefix("data:").lstrip(" ")
        elif not text:
            name = ""


def _checked(url: str) -> str:
    whole = url if "://" in url else f"http://{url}"
    allowed = f"an address is one such as {DEFAULT_URL}; got {url!r}"
    try:
        parts = urlsplit(whole)
        is_address = parts.scheme in ("http", "https") and parts.hostname
        _ = parts.port  # raises on an invalid port
    except ValueError as error:
        raise ValueError(f"{allowed}: {error}") from error
    if not is_address or not whole.isascii() or any(map(str.isspace, whole)):
        raise ValueError(allowed)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


# ---- the feed --------------------------------------------------------------------------------


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
    """The feed of one server: `GET /v1/events`, which `docs/serving.md` describes."""

    def __init__(self, server: ServerAddress, wait: Callable[[float], object] = time.sleep) -> None:
        """Store the server without a request; `wait` sleeps for some seconds."""
        self.url = server.url
        self._server, self._wait = server, wait
        self._opened: HTTPResponse | None = None

    def open(self) -> None:
        """Request the feed, or raise ServerError; `items` yields what is sent from now on."""
        self._opened = self._asked()

    def items(self) -> Iterator[FeedItem]:
        """Yield the items of the feed, without end: it reconnects after a lost connection."""
        while True:
            try:
                stream, self._opened = self._opened or self._asked(), None
                with stream:
                    yield StreamBegun()
                    for name, text in _sent_events(stream):
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
        if _is_stream(response):
            return response
        with response:
            if response.status == 503 and (message := _told_error(response)):
                raise ServerError(f"{self.url}: {message}")
            kind = response.headers.get_content_type()
        got = f"status {response.status}" if response.status != 200 else kind
        raise ServerError(f"{self.url}{_EVENTS} gave {got}, not a stream of events; {_NEEDED}")


def _item(name: str, text: str) -> FeedItem | None:
    """Return the item of an event; None for an unknown kind."""
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


# ---- prompts ----------------------------------------------------------------------------------


def ask_chat(
    server: ServerAddress, prompt: str, model: str = "", **fields: Any
) -> Iterator[dict[str, Any]]:
    """Send a prompt; return the chunks of its reply until it ends or the stream is cut off.

    `model` "" takes the server's own. `fields` are further fields of the request. A chunk that is
    no JSON object is empty. A refused prompt raises ServerError.
    """
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        **({"model": model} if model else {}),
        **fields,
    }
    response = server.ask(_CHAT, body, _QUEUE_S)
    if _is_stream(response):
        return _chunks(response)
    with response:
        why = _told_error(response) or f"status {response.status}"
    more = "" if model else "; where it wants a model, name one with --model NAME"
    raise ServerError(f"{server.url} refuses the prompt: {why}{more}")


def read_aside(chunks: Iterator[dict[str, Any]]) -> None:
    """Read a reply in a thread: a server ends one that nobody reads."""
    Thread(target=lambda: list(chunks), name="reply", daemon=True).start()


def _chunks(stream: HTTPResponse) -> Iterator[dict[str, Any]]:
    with stream, suppress(OSError, HTTPException):
        for _, data in _sent_events(stream):
            if data == "[DONE]":
                return
            try:
                found = json.loads(data)
            except ValueError:
                found = None
            yield found if isinstance(found, dict) else {}


def run_twice(
    server: ServerAddress, prompt: str, model: str = "", say: Callable[[str], object] = print
) -> list[list[Event]]:
    """Return the events of two greedy replies of `mlxspec serve`, the plain one first.

    The one with drafts is written first, so that its drafter cannot have seen the reply. Their
    speeds exclude the prefill. `say` is called when a run starts. Lost events raise ServerError.
    """
    runs: list[list[Event]] = []
    for number, (name, own) in enumerate(_RUNS.items(), 1):
        feed = ServerFeed(server)
        feed.open()  # before the prompt is sent, so that no event is missed
        say(f"run {number} of {len(_RUNS)}, {name}")
        chunks = ask_chat(server, prompt, model, **_GREEDY, **own)
        runs.append([TurnStarted("user", prompt), *_events(feed, chunks)])
    return runs[::-1]


def _events(feed: ServerFeed, chunks: Iterator[dict[str, Any]]) -> Iterator[Event]:
    name = f"{next(chunks, {}).get('id', '')}".removeprefix("chatcmpl-") + "-0"
    read_aside(chunks)
    for item in feed.items():
        match item:
            case ReplyEvent(reply=told, event=event) if told == name:
                yield event
                if isinstance(event, GenerationFailed):
                    raise ServerError(f"the reply failed: {event.message}")
                if isinstance(event, GenerationFinished):
                    return
            case EventsLost():
                raise ServerError("events of the reply were lost: race again")
            case StreamBroken(why):
                raise ServerError(f"{why}: race again")
