"""Asks a server for a reply, and tells of it what the server tells: every server can be watched so.

`mlxspec serve` tells every event of it in its live feed. Other servers tell of a reply only whoever
asked for it, each as much as it does; see `told_reply`.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Thread
from typing import Any

from mlxspec.errors import ServerError
from mlxspec.trace.events import Event
from mlxspec_app.sessions.servers.address import (
    ServerAddress,
    is_stream,
    sent_events,
    told_error,
)
from mlxspec_app.sessions.servers.feed import EVENTS, ServerFeed
from mlxspec_app.sessions.servers.items import (
    EventsLost,
    FeedItem,
    ReplyEvent,
    StreamBegun,
)
from mlxspec_app.sessions.servers.told_reply import ToldReply

_CHAT = "/v1/chat/completions"
_SILENCE_S = 1800.0  # other servers are silent while they read a long prompt


def ask(
    server: ServerAddress,
    prompt: str,
    model: str = "",
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[FeedItem]:
    """Send a prompt, and return what is told of the reply; `mlxspec serve` goes on with all others.

    Args:
        server: The server.
        prompt: The message of the user.
        model: Name of one of its models; "" takes the one that it takes.
        clock: Tells the time, in seconds.

    Raises:
        ServerError: There is no server, it needs another key, or it refuses the prompt.
    """
    if _has_feed(server):
        feed = ServerFeed(server)
        feed.open()  # before the prompt is sent, so that no event is missed
        Thread(target=_read_away, args=_sent(server, prompt, model), daemon=True).start()
        return feed.items()
    began = clock()
    connection, stream = _sent(server, prompt, model)
    return _told(connection, stream, lambda: clock() - began)


def _has_feed(server: ServerAddress) -> bool:
    connection, response = server.ask(EVENTS)
    with closing(connection):
        return is_stream(response)


def _sent(server: ServerAddress, prompt: str, model: str) -> tuple[HTTPConnection, HTTPResponse]:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "timings_per_token": True,  # of llama.cpp; others do not read it
    }
    if model:
        body["model"] = model
    connection, response = server.ask(_CHAT, body, _SILENCE_S)
    if is_stream(response):
        return connection, response
    with closing(connection):
        why = told_error(response) or f"status {response.status}"
    more = "" if model else "; where it wants a model, name one with --model NAME"
    raise ServerError(f"{server.url} refuses the prompt: {why}{more}")


def _read_away(connection: HTTPConnection, stream: HTTPResponse) -> None:
    """Read a reply whose events come in the feed: a server ends one that nobody reads."""
    with closing(connection):
        for _ in stream:
            pass


def _told(
    connection: HTTPConnection, stream: HTTPResponse, seconds: Callable[[], float]
) -> Iterator[FeedItem]:
    reply = ToldReply()

    def item(event: Event) -> ReplyEvent:
        return ReplyEvent(reply.model, reply.name, event)

    yield StreamBegun()
    with closing(connection):
        try:
            for _, data in sent_events(stream):
                if data == "[DONE]":
                    break
                chunk = _chunk(data)
                if chunk is None:
                    yield EventsLost(1)
                    continue
                yield from map(item, reply.add(chunk, seconds()))
        except (OSError, HTTPException):
            pass  # the reply says that it was cut off
    if reply.whole:
        yield reply.whole
    yield from map(item, reply.end(seconds()))


def _chunk(data: str) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
