"""Asks a server as a client does: one connection a request, its events read as they come."""

import json
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from urllib.parse import urlsplit

PATIENCE_S = 1800.0  # processes are stopped for minutes where machines are shared


class Refused(Exception):
    """A server that answered with an error."""


@dataclass(frozen=True)
class Told:
    """A reply as a client got it; the seconds are those to its first text, and to its end."""

    text: str
    first_s: float
    total_s: float
    usage: dict

    @property
    def tokens(self):
        return int(self.usage["completion_tokens"])


@contextmanager
def asked(url, path, body):
    """Send a request and yield its response, not read yet; any other status than 200 raises."""
    where = urlsplit(url)
    with closing(HTTPConnection(where.hostname, where.port, timeout=PATIENCE_S)) as connection:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise Refused(f"{path}: {response.status}: {response.read()[:300]!r}")
        yield response


def chat_body(model, text, max_tokens, **fields):
    """Return a request for a streamed greedy chat completion."""
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    how = {"max_tokens": max_tokens, "temperature": 0, "stream": True}
    return {**body, **how, "stream_options": {"include_usage": True}, **fields}


def told(url, body):
    """Return the reply to a streamed chat completion, with its times."""
    begin, first, parts, usage = time.perf_counter(), 0.0, [], {}
    with asked(url, "/v1/chat/completions", body) as response:
        for row in events(response):
            text = "".join(choice["delta"].get("content") or "" for choice in row["choices"])
            if text and not parts:
                first = time.perf_counter()
            parts += [text] if text else []
            usage = row.get("usage") or usage
    end = time.perf_counter()
    return Told("".join(parts), (first or end) - begin, end - begin, usage)


def events(response):
    """Yield the documents of a stream of server-sent events; an error in it raises."""
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
