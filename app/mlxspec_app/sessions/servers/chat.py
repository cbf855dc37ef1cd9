"""A prompt for a server over OpenAI's chat completions, and the chunks of its reply."""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Thread
from typing import Any

from mlxspec.errors import ServerError
from mlxspec_app.sessions.servers.address import (
    ServerAddress,
    is_stream,
    sent_events,
    told_error,
)

_CHAT = "/v1/chat/completions"
_SILENCE_S = 1800.0  # a reply may wait behind many others


class StreamedReply:
    """A reply that a server streams.

    Attributes:
        chunks: Its chunks until it ends or the stream is cut off; None for an invalid one.
    """

    def __init__(self, server: ServerAddress, prompt: str, model: str = "", **fields: Any) -> None:
        """Send a prompt.

        `model` "" takes the server's own. `fields` are further fields of the request.

        Raises:
            ServerError: No server answers, it needs another key, or it refuses the prompt.
        """
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            **({"model": model} if model else {}),
            **fields,
        }
        self.chunks = _chunks(*_answer(server, body))

    def read_aside(self) -> None:
        """Read the rest in a thread: a server ends a reply that nobody reads."""
        Thread(target=lambda: list(self.chunks), name="reply", daemon=True).start()


def _answer(server: ServerAddress, body: dict[str, Any]) -> tuple[HTTPConnection, HTTPResponse]:
    connection, response = server.ask(_CHAT, body, _SILENCE_S)
    if is_stream(response):
        return connection, response
    with closing(connection):
        why = told_error(response) or f"status {response.status}"
    more = "" if "model" in body else "; where it wants a model, name one with --model NAME"
    raise ServerError(f"{server.url} refuses the prompt: {why}{more}")


def _chunks(connection: HTTPConnection, stream: HTTPResponse) -> Iterator[dict[str, Any] | None]:
    with closing(connection), suppress(OSError, HTTPException):
        for _, data in sent_events(stream):
            if data == "[DONE]":
                return
            yield _chunk(data)


def _chunk(data: str) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
