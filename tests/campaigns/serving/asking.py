"""Asks a server as a client does: one connection a request, its events read as they come."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 1800.0  # processes are stopped for minutes where machines are shared
JSON = {"Content-Type": "application/json"}


class Refused(Exception):
    """A server that answered with an error."""


@dataclass(frozen=True)
class Told:
    """A reply as a client got it.

    Attributes:
        text: Its text.
        first_s: Seconds from the request to the first text.
        total_s: Seconds from the request to the end.
        usage: What the server told of the tokens.
        timings: What it told of drafts; mlx-lm's server tells nothing.
    """

    text: str
    first_s: float
    total_s: float
    usage: Mapping[str, Any]
    timings: Mapping[str, Any]

    @property
    def tokens(self) -> int:
        """Tokens of the reply."""
        return int(self.usage["completion_tokens"])


def opened(url: str, path: str, body: Mapping[str, Any]) -> tuple[HTTPConnection, HTTPResponse]:
    """Return a connection on which a request was sent, and its response, not read yet.

    Raises:
        Refused: The status is not 200.
    """
    where = urlsplit(url)
    connection = HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", path, json.dumps(body), JSON)
        response = connection.getresponse()
        if response.status != 200:
            raise Refused(f"{response.status}: {response.read()[:300]!r}")
    except BaseException:
        connection.close()
        raise
    return connection, response


def chat_body(model: str, text: str, max_tokens: int, **fields: Any) -> dict[str, Any]:
    """Return a request for a streamed greedy chat completion."""
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    how = {"max_tokens": max_tokens, "temperature": 0, "stream": True}
    return {**body, **how, "stream_options": {"include_usage": True}, **fields}


def told(url: str, body: Mapping[str, Any], clock: Callable[[], float] = time.perf_counter) -> Told:
    """Return the reply to a streamed chat completion, with its times."""
    begin, first = clock(), 0.0
    parts: list[str] = []
    rows: dict[str, Any] = {}
    connection, response = opened(url, "/v1/chat/completions", body)
    with closing(connection):
        for row in events(response):
            text = "".join(choice["delta"].get("content") or "" for choice in row["choices"])
            if text and not parts:
                first = clock()
            parts += [text] if text else []
            rows |= {name: row[name] for name in ("usage", "timings") if row.get(name)}
    end = clock()
    usage, timings = rows.get("usage", {}), rows.get("timings", {})
    return Told("".join(parts), (first or end) - begin, end - begin, usage, timings)


def events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the documents of a stream of server-sent events, up to its end.

    Raises:
        Refused: The stream tells an error, or ends before its end.
    """
    for line in iter(response.readline, b""):
        if line.startswith(b"data: "):
            data = line[len(b"data: ") :].strip()
            if data == b"[DONE]":
                response.read()
                return
            row = json.loads(data)
            if "error" in row:
                raise Refused(str(row["error"]))
            yield row


def logprobs(url: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a whole chat completion tells of each token."""
    connection, response = opened(url, "/v1/chat/completions", body)
    with closing(connection):
        rows: list[dict[str, Any]] = json.load(response)["choices"][0]["logprobs"]["content"]
    return rows
