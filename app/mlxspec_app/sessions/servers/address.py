"""HTTP requests to a server, and the errors when they fail."""

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from mlxspec.errors import ServerError

DEFAULT_URL = "http://127.0.0.1:8080"
STREAM_TYPE = "text/event-stream"
_SILENCE_S = 30.0  # a server sends a sign of life more often


class ServerAddress:
    """A server and its API key; its `url` is without a path of its API."""

    def __init__(self, url: str = DEFAULT_URL, key: str = "") -> None:
        """Check address and key without a request; `url` may lack http://, or end with /v1."""
        self.url = _checked(url)
        if not (key.isascii() and key.isprintable()):
            raise ValueError("an API key has letters, digits and signs of ASCII: give another one")
        self._has_key = bool(key)
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        self._headers = {"Accept": STREAM_TYPE, "Connection": "close", **authorization}

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


def is_stream(response: HTTPResponse) -> bool:
    """Return whether a response is a stream of server-sent events."""
    return response.status == 200 and response.headers.get_content_type() == STREAM_TYPE


def told_error(response: HTTPResponse) -> str:
    """Return the error message in a response that is not a stream, or ""."""
    try:
        found = json.loads(response.read(10_000))
    except (OSError, HTTPException, ValueError):
        return ""
    error = found.get("error", found.get("detail", "")) if isinstance(found, dict) else ""
    return str(error.get("message", "") if isinstance(error, dict) else error)


def sent_events(stream: HTTPResponse) -> Iterator[tuple[str, str]]:
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
