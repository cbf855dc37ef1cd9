"""What hostile clients do: each attack is one connection, and says what it met."""

import json
import socket
import time
from urllib.parse import urlsplit

_PATIENCE_S = 600.0
_LONG = 400  # tokens: none of these replies is read to its end
_MOST_STALL_S = 8.0
_SLOW = 4096  # bytes of the receive buffer of a client that does not read
_BODIES = (
    *(b"", b"{", b"[]", b"null", b'"a"', b"9" * 5000, b"\xff\xfe{", b"\x00" * 100),
    *(b"[" * 100_000, b'{"a":' * 50_000, b'{"messages": NaN}', b'{"n": ' + b"9" * 5000 + b"}"),
    *(b'{"messages": [{"role": 3}]}', b'{"messages": [[]]}', b'{"messages": {"role": "user"}}'),
    b'{"model": "../../etc/passwd", "messages": [{"role": "user", "content": "a"}]}',
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"prompt": [-1], "max_tokens": -5}',
    b'{"messages": [' + b'{"role": "user", "content": "word "},' * 20_000 + b'{"role": "x"}]}',
)
_STRANGE = (
    b'{"temperature": 1e999, "messages": [{"role": "user", "content": "a"}]}',
    b'{"stop": [' + b'"a",' * 50_000 + b'"a"], "messages": [{"role": "user", "content": "a"}]}',
)
"""Bodies that some routes may answer: who counts tokens asks for no temperature."""
_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"),
    *("/v1/messages/count_tokens", "/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//"),
)


class Harmed(Exception):
    """A server that let an attack through."""


def cancels(server, draw):
    """Read some of a stream and close it."""
    with _asking(server, draw, is_streamed=True) as connection:
        for _ in range(draw.randrange(1, 12)):
            if not connection.recv(2048):
                break
    return "cancelled"


def stalls(server, draw):
    """Ask for a stream and do not read it."""
    with _asking(server, draw, is_streamed=True, receive=_SLOW):
        time.sleep(draw.uniform(0.5, _MOST_STALL_S))
    return "stalled"


def goes(server, draw):
    """Ask and go at any time, without a word or with a reset."""
    with _asking(server, draw, is_streamed=draw.random() < 0.5) as connection:
        time.sleep(draw.uniform(0, 2))
        if draw.random() < 0.5:  # a reset in place of a goodbye
            option = socket.SO_LINGER
            connection.setsockopt(socket.SOL_SOCKET, option, b"\x01\0\0\0\0\0\0\0")
    return "gone"


def sends_half(server, draw):
    """Send a part of a request, wait, and go."""
    with _asking(server, draw, is_streamed=True, is_whole=False):
        time.sleep(draw.uniform(0, 3))
    return "half sent"


def sends_nonsense(server, draw):
    """Send a hostile body, and look at the status."""
    body = draw.choice(_BODIES + _STRANGE)
    answer = _answer(server, _request(server, draw.choice(_PATHS), body))
    status, allowed = int(answer.split(b" ", 2)[1]), (400, 404, 405, 413, 415)
    if status not in (*allowed, *((200,) if body in _STRANGE else ())) or b"Traceback" in answer:
        raise Harmed(f"a hostile body was answered with {answer[:200]!r}")
    return "answered" if status == 200 else f"refused, {status}"


def sends_bytes(server, draw):
    """Send what is no HTTP."""
    answer = _answer(server, draw.randbytes(draw.randrange(1, 5000)) + b"\r\n\r\n")
    if answer and b" 400 " not in answer[:20]:
        raise Harmed(f"bytes at random were answered with {answer[:60]!r}")
    return "no HTTP"


ATTACKS = {cancels: 6, stalls: 3, goes: 6, sends_half: 4, sends_nonsense: 4, sends_bytes: 1}
"""All attacks, and how often each is made."""


def attack(server, draw):
    """Make one attack, and say what came of it; `Harmed` if the server did what it must not do."""
    (chosen,) = draw.choices([*ATTACKS], [*ATTACKS.values()])
    try:
        return chosen(server, draw)
    except ConnectionError:
        return "shown out"


def _asking(server, draw, *, is_streamed, receive=0, is_whole=True):
    """Return a connection on which a chat completion was asked for, or a part of the request."""
    fields = {
        "model": server.model,
        "messages": [{"role": "user", "content": f"Story number {draw.randrange(10**6)}."}],
        "max_tokens": _LONG,
        "temperature": draw.choice((0, 0.9)),
        "stream": is_streamed,
        "n": draw.choice((1, 1, 1, 2)),
    }
    sent = _request(server, "/v1/chat/completions", json.dumps(fields).encode())
    connection = _connected(server, receive)
    connection.sendall(sent if is_whole else sent[: draw.randrange(1, len(sent))])
    return connection


def _request(server, path, body):
    lines = [f"POST {path} HTTP/1.1", f"Host: {urlsplit(server.url).netloc}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "Connection: close", "\r\n"]).encode() + body


def _answer(server, sent):
    with _connected(server) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def _connected(server, receive=0):
    where = urlsplit(server.url)
    connection = socket.socket()
    if receive:  # before the connection is made, or it has no effect
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    connection.settimeout(_PATIENCE_S)
    connection.connect((where.hostname, where.port))
    return connection
