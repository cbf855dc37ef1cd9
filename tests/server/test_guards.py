"""Who may ask, how much, and what becomes of replies whose reader has gone."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from mlxspec.trace.events import GenerationFailed
from mlxspec_server import engine_thread
from mlxspec_server.body import Refusal
from mlxspec_server.server import Server
from mlxspec_server.settings import ServerSettings
from tests.support.served import (
    ASKED,
    JSON,
    MESSAGES,
    engine,
    listening,
    prepared,
    serving,
    shelf,
    ticket,
    true_text,
)

CHAT = {"messages": MESSAGES}
PATH = "/v1/chat/completions"


def test_a_key_is_needed_where_there_is_one():
    with serving(api_key="secret") as client:
        assert client.post(PATH, json=CHAT).status_code == 401
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/events").status_code == 401
        assert client.get("/health").status_code == 200
        for headers in ({"Authorization": "Bearer secret"}, {"x-api-key": "secret"}):
            assert client.get("/v1/models", headers=headers).status_code == 200
        wrong = {"Authorization": "Bearer secre"}
        assert client.post(PATH, json=CHAT, headers=wrong).status_code == 401


def test_a_page_of_another_origin_may_not_read_or_rename_this_machine():
    origin = {"Origin": "http://evil.example"}
    with serving() as client:
        assert "access-control-allow-origin" not in client.get("/health", headers=origin).headers
        for path in ("/health", "/", "/v1/models"):
            found = client.get(path, headers={"Host": "evil.example:8080"})
            assert found.status_code == 400
            assert "start it with --allowed-hosts evil.example" in found.json()["error"]["message"]
        for name in ("[::1", "a b", "localhost.evil.example"):
            assert client.get("/health", headers={"Host": name}).status_code == 400
        for name in ("127.0.0.1:8080", "[::1]:8080", "LOCALHOST"):
            assert client.get("/health", headers={"Host": name}).status_code == 200
    with serving(hosts=("host.docker.internal",)) as client:
        for name, status in (("host.docker.internal:8080", 200), ("evil.example", 400)):
            assert client.get("/health", headers={"Host": name}).status_code == status
    with serving(origins=("http://evil.example",)) as client:
        found = client.get("/health", headers=origin).headers
        assert found["access-control-allow-origin"] == "http://evil.example"


def test_a_body_that_is_too_large_is_refused():
    with serving(max_body_bytes=1000) as client:
        body = b'{"messages": "' + b"a" * 2000
        assert client.post(PATH, content=body, headers=JSON).status_code == 413


def test_a_queue_that_is_full_says_when_to_ask_again():
    may_load, is_loading = threading.Event(), threading.Event()

    def load(offer):
        is_loading.set()
        assert may_load.wait(60)
        return engine()

    sizes = {"batch_size": 1, "max_waiting": 1}
    with serving(shelf(load_engine=load), **sizes) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, PATH, json={**CHAT, "n": 2})
        assert is_loading.wait(60)
        found = client.post(PATH, json=CHAT)
        may_load.set()
        assert first.result().status_code == 200
        assert client.post(PATH, json=CHAT).status_code == 200  # there is room again
    assert found.status_code == 429
    assert int(found.headers["retry-after"]) > 0


def test_while_a_model_loads_a_stream_says_that_it_is_alive():
    def load(offer):
        time.sleep(0.3)
        return engine()

    with serving(shelf(load_engine=load), keep_alive_s=0.1) as client:
        text = client.post(PATH, json={**CHAT, "stream": True}).text
    assert text.startswith(": the model is loading\n\n")
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("path", "begin"),
    [
        (PATH, 'data: {"error": {"type": "server_error", "message": "tiny'),
        ("/v1/responses", 'event: error\ndata: {"type": "error", "sequence'),
        ("/v1/messages", 'event: error\ndata: {"type": "error", "error": {"type": "api_error"'),
    ],
)
def test_a_model_that_cannot_be_loaded_is_told_in_the_form_of_the_api(path, begin):
    def load(offer):
        time.sleep(0.1)
        raise RuntimeError("too little memory")

    with serving(shelf(load_engine=load), keep_alive_s=0.02) as client:
        whole = client.post(path, json=ASKED[path])
        streamed = client.post(path, json={**ASKED[path], "stream": True}).text
    assert whole.status_code == 503
    assert "tiny cannot be loaded: too little memory" in whole.json()["error"]["message"]
    *comments, last = streamed.removesuffix("\n\n").split("\n\n")
    assert set(comments) == {": the model is loading"}
    assert last.startswith(begin)
    assert "tiny cannot be loaded: too little memory" in last


def test_an_error_that_nobody_expected_is_told_in_the_form_of_the_api():
    def offers():
        raise KeyError("secret")

    app = Server(shelf(list_offers=offers), ServerSettings()).app()
    client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
    found = client.get("/v1/models")
    assert found.status_code == 500
    assert "the server failed" in found.json()["error"]["message"]
    assert "secret" not in found.text


# ---- over a real socket ---------------------------------------------------------------------


@pytest.fixture
def address():
    """Host and port of a server in a thread, and the server."""
    with listening() as (port, server):
        yield ("127.0.0.1", port), server


def request_of(**fields):
    body = json.dumps({**CHAT, **fields})
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


def wait_for(count, server):
    deadline = time.monotonic() + 30
    while server.thread.num_replies != count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.thread.num_replies == count


def test_a_client_that_goes_ends_its_reply(address):
    where, server = address
    for stream in (True, False):
        with socket.create_connection(where, timeout=30) as connection:
            connection.sendall(request_of(max_tokens=100_000, stream=stream))
            wait_for(1, server)
        wait_for(0, server)


def test_a_reader_that_stalls_holds_nobody_back(address):
    where, _ = address
    with socket.create_connection(where, timeout=60) as stalled:
        stalled.sendall(request_of(max_tokens=300, stream=True))  # and never reads
        with socket.create_connection(where, timeout=60) as other:
            other.sendall(request_of())
            received = b"".join(iter(lambda: other.recv(65536), b""))
    assert b"200 OK" in received
    assert true_text(MESSAGES).encode()[:1] in received


def test_a_server_that_stops_ends_the_replies_and_says_why():
    (thread, loaded), told = prepared(), []
    thread.ask(loaded, [ticket(loaded, deliver=lambda event, logprobs: told.append(event))])
    waiting = thread.hold(thread.shelf.find("other"))
    thread.end_replies()  # before the thread begins, so that nothing is over
    thread.start()
    thread.stop()
    assert isinstance(told[0], GenerationFailed)
    assert told[0].message == "the server stops"
    with pytest.raises(Refusal, match="the server stops"):
        waiting.result(60)


@pytest.mark.parametrize(("name", "seconds"), [("_IDLE_S", 0.01), ("_BUSY_S", 0.0)])
def test_memory_is_given_back_once_where_it_idles_and_now_and_then(name, seconds, monkeypatch):
    given_back = threading.Semaphore(0)
    monkeypatch.setattr(engine_thread, "give_back_memory", given_back.release)
    for other in ("_IDLE_S", "_BUSY_S"):
        monkeypatch.setattr(engine_thread, other, seconds if other == name else 600.0)
    thread, loaded = prepared()
    if name == "_BUSY_S":
        thread.ask(loaded, [ticket(loaded, max_tokens=400)])
    thread.start()
    try:
        assert given_back.acquire(timeout=20)
        if name == "_IDLE_S":
            assert not given_back.acquire(timeout=0.1)
    finally:
        thread.stop()
