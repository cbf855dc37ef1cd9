"""Who may ask, how much, and what becomes of replies whose reader has gone."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from mlxspec.params import GenerationParams
from mlxspec.trace.events import GenerationFailed
from mlxspec_server import engine_thread
from mlxspec_server.engine_thread import EngineThread, Ticket
from mlxspec_server.figures import Counts
from mlxspec_server.refusals import Refusal
from mlxspec_server.server import Server
from mlxspec_server.settings import ServerSettings
from tests.support.served import (
    JSON,
    MESSAGES,
    engine,
    listening,
    serving,
    shelf,
    true_text,
)

CHAT = {"messages": MESSAGES}
PATH = "/v1/chat/completions"


def test_other_machines_need_a_key_or_a_word():
    with pytest.raises(
        ValueError, match=r"--host 0\.0\.0\.0 lets other machines ask: give --api-key"
    ):
        ServerSettings(host="0.0.0.0")
    assert ServerSettings(host="0.0.0.0", api_key="k").api_key == "k"
    assert ServerSettings(host="0.0.0.0", is_insecure=True).is_insecure
    assert ServerSettings(host="::1").is_loopback


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


def test_a_model_that_cannot_be_loaded_is_said_so():
    def load(offer):
        raise RuntimeError("too little memory")

    with serving(shelf(load_engine=load)) as client:
        found = client.post(PATH, json=CHAT)
    assert found.status_code == 503
    assert "tiny cannot be loaded: too little memory" in found.json()["error"]["message"]


def test_while_a_model_loads_a_stream_says_that_it_is_alive():
    def load(offer):
        time.sleep(1.2)
        return engine()

    with serving(shelf(load_engine=load), keep_alive_s=0.2) as client:
        text = client.post(PATH, json={**CHAT, "stream": True}).text
    assert text.startswith(": the model is loading\n\n")
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("path", "body", "begin"),
    [
        (PATH, CHAT, 'data: {"error": {"type": "server_error", "message": "tiny'),
        ("/v1/responses", {"input": "Hi"}, 'event: error\ndata: {"type": "error", "sequence'),
        (
            "/v1/messages",
            {**CHAT, "max_tokens": 9},
            'event: error\ndata: {"type": "error", "error": {"type": "api_error"',
        ),
    ],
)
def test_a_stream_that_has_begun_tells_a_refusal_in_the_form_of_its_api(path, body, begin):
    def load(offer):
        time.sleep(0.2)
        raise RuntimeError("too little memory")

    with serving(shelf(load_engine=load), keep_alive_s=0.05) as client:
        text = client.post(path, json={**body, "stream": True}).text
    *comments, last = text.removesuffix("\n\n").split("\n\n")
    assert set(comments) == {": the model is loading"}
    assert last.startswith(begin)
    assert "tiny cannot be loaded: too little memory" in last


def test_an_error_that_nobody_expected_is_told_in_the_form_of_the_api():
    def offers():
        raise KeyError("secret")

    app = Server.of(shelf(list_offers=offers), ServerSettings()).app()
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


def request_of(body):
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


def test_a_client_that_goes_ends_its_reply(address):
    where, server = address
    body = '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100000%s}'
    for stream in (', "stream": true', ""):
        with socket.create_connection(where, timeout=30) as connection:
            connection.sendall(request_of(body % stream))
            deadline = time.monotonic() + 30
            while not server.thread.num_replies and time.monotonic() < deadline:
                time.sleep(0.01)
            assert server.thread.num_replies == 1
        deadline = time.monotonic() + 30
        while server.thread.num_replies and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.thread.num_replies == 0


def test_a_reader_that_stalls_holds_nobody_back(address):
    where, _ = address
    body = '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 300, "stream": true}'
    with socket.create_connection(where, timeout=60) as stalled:
        stalled.sendall(request_of(body))  # and never reads
        short = '{"messages": [{"role": "user", "content": "Hi"}]}'
        with socket.create_connection(where, timeout=60) as other:
            other.sendall(request_of(short))
            received = b"".join(iter(lambda: other.recv(65536), b""))
    assert b"200 OK" in received
    assert true_text(MESSAGES).encode()[:1] in received


def test_a_server_that_stops_ends_the_replies_and_says_why():
    thread, told = EngineThread(shelf(), Counts()), []
    loaded = thread.shelf.load(thread.shelf.main)
    job = loaded.engine.job("Hi", GenerationParams(max_tokens=400))
    thread.ask(loaded, [Ticket("one", job, lambda event, logprobs: told.append(event))])
    waiting = thread.hold(thread.shelf.find("other"))
    thread.end_replies()  # before the thread begins, so that nothing is over
    thread.start()
    thread.stop()
    assert isinstance(told[0], GenerationFailed)
    assert told[0].message == "the server stops"
    with pytest.raises(Refusal, match="the server stops"):
        waiting.result(60)


def test_an_idle_server_gives_memory_back_once(given_back, monkeypatch):
    monkeypatch.setattr(engine_thread, "_IDLE_S", 0.01)
    thread = EngineThread(shelf(), Counts())
    thread.start()
    assert given_back.acquire(timeout=60)
    assert not given_back.acquire(timeout=0.1)
    thread.stop()


def test_a_busy_server_gives_memory_back_now_and_then(given_back, monkeypatch):
    monkeypatch.setattr(engine_thread, "_BUSY_S", 0.0)
    thread = EngineThread(shelf(), Counts())
    loaded = thread.shelf.load(thread.shelf.main)
    job = loaded.engine.job("Hi", GenerationParams(max_tokens=400))
    thread.ask(loaded, [Ticket("one", job, lambda event, logprobs: None)])
    thread.start()
    assert given_back.acquire(timeout=60)
    thread.stop()


@pytest.fixture
def given_back(monkeypatch):
    """Counts how often memory is given back."""
    count = threading.Semaphore(0)
    monkeypatch.setattr(engine_thread, "give_back_memory", count.release)
    return count
