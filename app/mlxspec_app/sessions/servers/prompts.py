"""Prompts for a server over OpenAI's chat completions: one, or the same twice for a race."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from threading import Thread
from typing import Any

from mlxspec.errors import ServerError
from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished, TurnStarted
from mlxspec_app.sessions.servers.address import (
    ServerAddress,
    is_stream,
    sent_events,
    told_error,
)
from mlxspec_app.sessions.servers.feed import EventsLost, ReplyEvent, ServerFeed, StreamBroken

_CHAT = "/v1/chat/completions"
_SILENCE_S = 1800.0  # a reply may wait behind many others
_RUNS = {"with drafts": {}, "plain": {"num_draft_tokens": 0}}
_GREEDY = {"temperature": 0, "seed": 0}


def ask_chat(
    server: ServerAddress, prompt: str, model: str = "", **fields: Any
) -> Iterator[dict[str, Any]]:
    """Send a prompt; return the chunks of its reply until it ends or the stream is cut off.

    `model` "" takes the server's own. `fields` are further fields of the request. A chunk that is
    no JSON object is empty.

    Raises:
        ServerError: No server answers, it needs another key, or it refuses the prompt.
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
    speeds exclude the prefill. `model` "" takes the server's own; `say` is called when a run
    starts.

    Raises:
        ServerError: No server answers, it is of another kind, it needs another key, it refuses the
            prompt, or events were lost.
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
