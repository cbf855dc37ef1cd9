"""Clients that hold a connection and do not ask, do not send, do not read, or that go."""

import json
import logging
import os
import resource
import socket
import time
from contextlib import ExitStack, contextmanager

import pytest

from mlxspec_server.run import _allow_files, listen
from tests.support import served
from tests.support.pairwise import pairwise
from tests.support.served import ASKED, LENGTH, MESSAGES, listening, true_text

CHAT = {"messages": MESSAGES, "max_tokens": LENGTH}
APIS = {**ASKED, "/v1/messages/count_tokens": {"messages": MESSAGES}}
PATH = "/v1/chat/completions"
LONG = {**CHAT, "max_tokens": 100_000, "stream": True}
HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc"
SOON_S, LATE_S = 0.3, 60.0
RESET = b"\x01\0\0\0\0\0\0\0"  # SO_LINGER: a reset in place of a goodbye


def request(path, body, *, more=0, close=True):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    ending = "Connection: close\r\n\r\n" if close else "\r\n"
    return f"{head}Content-Length: {len(data) + more}\r\n{ending}".encode() + data


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def read(connection):
    """All that comes until the connection ends, however that is."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found


def asked(port, path=PATH, body=CHAT):
    with connected(port) as connection:
        connection.sendall(request(path, body))
        return read(connection)


def num_files():
    """Files that this process has open: both ends of each connection."""
    return len(os.listdir("/dev/fd"))


def text_of(answer):
    return json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"]


def drip(connection, data):
    for byte in data:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def wait_until(is_so, seconds=30):
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_so()


@contextmanager
def bounded(**changes):
    """A server whose times are long but for those that are named: its port, and itself."""
    times = {"header_s": LATE_S, "body_s": LATE_S, "stall_s": LATE_S}
    with listening(**{**times, **changes}) as (port, server):
        yield port, server


HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
STALLS = [
    *(("header_s", sent) for sent in (b"", b"P", HALF)),
    *(("body_s", request(path, body, more=10)) for path, body in APIS.items()),
    ("body_s", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}"),
    ("body_s", HEAD + b"Content-Length: 9\r\n\r\n"),
    ("body_s", HEAD + b"Content-Length: 9\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n{"),
]


@pytest.mark.parametrize("part", ["header_s", "body_s"])
def test_a_request_that_stalls_is_cut(part):
    with bounded(**{part: SOON_S}) as (port, server), ExitStack() as open_ones:
        stalled = [sent for name, sent in STALLS if name == part]
        connections = [open_ones.enter_context(connected(port)) for _ in stalled]
        for connection, sent in zip(connections, stalled, strict=True):
            connection.sendall(sent)
        assert [read(connection) for connection in connections] == [b""] * len(stalled)
        assert server.feed.metrics({}).count("mlxspec_requests_total 0")


def test_bytes_of_a_header_that_drip_win_no_time():
    gone = pytest.raises(ConnectionError)
    with bounded(header_s=SOON_S) as (port, _), connected(port) as connection, gone:
        drip(connection, HALF * 3)


def test_half_a_header_after_an_answer_is_cut():
    with bounded(header_s=SOON_S) as (port, _), connected(port) as connection:
        connection.sendall(request(PATH, CHAT, close=False))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(HALF)
        assert b"HTTP/1.1" not in read(connection)


def test_a_header_without_end_is_refused():
    with bounded() as (port, _), connected(port) as connection:
        connection.sendall(HALF)
        for _ in range(3):
            connection.sendall(b"x" * 8000)
            time.sleep(0.05)
        assert read(connection).startswith(b"HTTP/1.1 400")


def test_a_body_that_goes_on_after_its_refusal_is_cut():
    with bounded(body_s=SOON_S) as (port, _), connected(port) as connection:
        connection.sendall(request("/nowhere", {}, more=10, close=False))
        assert connection.recv(65536).startswith(b"HTTP/1.1 404")
        connection.sendall(b" ")  # so that it is no idle connection any more
        assert b"HTTP/1.1" not in read(connection)


def test_a_client_that_does_not_read_is_cut():
    page = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with bounded(stall_s=SOON_S) as (port, _):
        asked(port)
        before = num_files()
        with connected(port) as connection:
            wait_until(lambda: num_files() == before + 2)
            connection.sendall(page * 300)  # each answer has 50 kB: more than any buffer on the way
            wait_until(lambda: num_files() == before + 1)
            assert read(connection).count(b"</html>") < 300


def test_a_client_that_leaves_less_than_a_buffer_unread_is_cut(monkeypatch):
    def listen_with_small_buffers(settings):
        listening = listen(settings)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listening

    monkeypatch.setattr(served, "listen", listen_with_small_buffers)
    with bounded(stall_s=SOON_S) as (port, _), socket.socket() as connection:
        before = num_files()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: num_files() > before)
        wait_until(lambda: num_files() == before, 4)  # it would be idle for longer than this
        assert b"</html>" not in read(connection)


def test_a_stream_that_is_not_read_is_cut_and_its_reply_ends():
    with bounded(stall_s=SOON_S) as (port, server), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(request(PATH, {**LONG, "n": 16, "logprobs": True, "top_logprobs": 20}))
        wait_until(lambda: server.thread.num_replies)
        wait_until(lambda: not server.thread.num_replies, 300)  # megabytes fit in between
        connection.settimeout(30)
        assert not read(connection).endswith(b"[DONE]\n\n")


def test_a_client_that_reads_slowly_gets_all_of_a_long_reply():
    with bounded(stall_s=SOON_S) as (port, _), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        body = {**CHAT, "max_tokens": 60, "stream": True, "logprobs": True, "top_logprobs": 20}
        connection.sendall(request(PATH, body))
        found = b""
        while part := connection.recv(4096):
            found += part
            time.sleep(0.01)
    assert found.endswith(b"[DONE]\n\n\r\n0\r\n\r\n")


def test_one_connection_too_many_is_refused_in_the_form_of_its_api():
    with bounded(max_connections=2) as (port, server), ExitStack() as open_ones:
        streams = [open_ones.enter_context(connected(port)) for _ in range(2)]
        for stream in streams:
            stream.sendall(request(PATH, LONG))
        wait_until(lambda: server.thread.num_replies == 2)
        for path, body in APIS.items():
            status, _, document = asked(port, path, body).partition(b"\r\n\r\n")
            assert status.startswith(b"HTTP/1.1 503"), path
            assert b"retry-after: 2" in status
            told = json.loads(document)
            assert "all 2 connections are in use" in told["error"]["message"]
            assert (told.get("type") == "error") == path.startswith("/v1/messages"), path
        assert server.thread.num_replies == 2
        for stream in streams:
            assert stream.recv(100).startswith(b"HTTP/1.1 200")


def test_an_honest_client_is_served_beside_450_half_headers():
    with bounded(header_s=5) as (port, _), ExitStack() as open_ones:
        text = text_of(asked(port))
        before = num_files()
        for _ in range(450):
            connection = open_ones.enter_context(connected(port))
            connection.sendall(HALF)
        assert text_of(asked(port)) == text == true_text(MESSAGES)
        open_ones.close()
        wait_until(lambda: num_files() <= before)


def test_who_has_asked_for_nothing_for_longest_makes_room_and_nobody_who_asked():
    with bounded(max_connections=3) as (port, server), connected(port) as stream:
        stream.sendall(request(PATH, LONG))
        wait_until(lambda: server.thread.num_replies == 1)
        with connected(port) as oldest, connected(port) as idle, connected(port) as newer:
            assert read(oldest) == b""
            for connection in (newer, idle):
                connection.sendall(request(PATH, CHAT))
                assert text_of(read(connection)) == true_text(MESSAGES)
        assert server.thread.num_replies == 1


def test_a_process_may_open_as_many_files_as_its_connections_need():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        _allow_files(512)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, before[1])
        _allow_files(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


LEAVES = {  # what a client has sent when it leaves
    "header": lambda path, body: request(path, body)[:60],
    "upload": lambda path, body: request(path, body, more=10),
    "reply": request,
    "stream": lambda path, body: request(path, {**body, "stream": True}),
}


@pytest.fixture(scope="module")
def left():
    """A server that all clients leave, one after the other."""
    with bounded() as found:
        yield found


@pairwise(
    path=APIS,
    leave=LEAVES,
    is_reset=[pytest.param(False, id="closes"), pytest.param(True, id="resets")],
)
def test_a_client_that_leaves_is_no_fault_and_leaves_nothing(
    left, path, leave, is_reset, caplog, capfd
):
    port, server = left
    lengths = {"max_tokens": 100_000, "max_output_tokens": 100_000}
    with caplog.at_level(logging.INFO):
        with connected(port) as connection:
            connection.sendall(LEAVES[leave](path, {**APIS[path], **lengths}))
            time.sleep(0.02)
            if is_reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        assert text_of(asked(port)) == true_text(MESSAGES)
        wait_until(lambda: not (server.thread.num_replies or server.answers._num_asked))
        wait_until(lambda: not any(one.num_users for one in server.thread.shelf.loaded))
        wait_until(lambda: not server.feed._begun)
    assert [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR] == []
    assert "Traceback" not in "".join(capfd.readouterr())
