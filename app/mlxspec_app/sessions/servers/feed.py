"""What a server writes: the live feed of `mlxspec serve`, and replies to prompts of ours.

A prompt is sent over OpenAI's chat completions: once, or twice for a race.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from threading import Thread
from typing import Any

from mlxspec.errors import ServerError, TraceError
from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished, TurnStarted
from mlxspec.trace.file import event_from_record
from mlxspec_app.sessions.servers.address import ServerAddress, is_stream, sent_events, told_error

_EVENTS = "/v1/events"
_RETRY_S = 2.0
_NEEDED = "only `mlxspec serve` streams the events of its replies: give its address"
_CHAT = "/v1/chat/completions"
_SILENCE_S = 1800.0  # a reply may wait behind many others
_RUNS = {"with drafts": {}, "plain": {"num_draft_tokens": 0}}
_GREEDY = {"temperature": 0, "seed": 0}


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
    response = server.ask(_CHAT, body, _SILENCE_S)
    if is_stream(response):
        return _chunks(response)
    with response:
        why = told_error(response) or f"status {response.status}"
    more = "" if model else "; where it wants a model, name one with --model NAME"
    raise ServerError(f"{server.url} refuses the prompt: {why}{more}")


def read_aside(chunks: Iterator[dict[str, Any]]) -> None:
    """Read a reply in a thread: a server ends one that nobody reads."""
    Thread(target=lambda: list(chunks), name="reply", daemon=True).start()


def _chunks(stream: HTTPResponse) -> Iterator[dict[str, Any]]:
    with stream, suppress(OSError, HTTPException):
        for _, data in sent_events(stream):
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
