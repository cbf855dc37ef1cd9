"""Who may ask and how much, what one request may cost another one, and a server that stops."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from mlxspec.grammar.compiled import Grammars
from mlxspec.text.tokenizer import Tokenizer
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
    prepared,
    serving,
    shelf,
    ticket,
    true_text,
    working,
)

CHAT = {"messages": MESSAGES}
PATH = "/v1/chat/completions"
SLOW = {"messages": [{"role": "user", "content": "SLOW"}]}
SCHEMA = {"response_format": {"type": "json_schema", "schema": {"enum": [12, 21]}}}


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


@pytest.mark.parametrize(
    ("part", "name", "is_slow", "body"),
    [
        (Tokenizer, "encode", lambda text: "SLOW" in text, SLOW),
        (Grammars, "matcher", lambda grammar: grammar is not None, {**SLOW, **SCHEMA}),
    ],
)
def test_what_takes_long_in_one_request_stops_no_stream(monkeypatch, part, name, is_slow, body):
    has_begun, may_end, was_told = threading.Event(), threading.Event(), []
    act = getattr(part, name)

    def held(self, given, **how):
        if is_slow(given):
            has_begun.set()
            was_told.append(may_end.wait(20))
        return act(self, given, **how)

    monkeypatch.setattr(part, name, held)
    with serving() as client, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.post, PATH, json={**body, "max_tokens": 20})
        assert has_begun.wait(20)
        stream = client.post(PATH, json={**CHAT, "stream": True})
        may_end.set()
        assert slow.result().status_code == 200
    assert was_told[0], "the stream waited for the other request"
    assert true_text(MESSAGES)[:1] in stream.text


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


# ---- the engine thread ----------------------------------------------------------------------


def test_a_server_that_stops_ends_the_replies_and_says_why():
    (thread, loaded), told = prepared(), []
    thread.ask(loaded, [ticket(loaded, deliver=lambda event, logprobs: told.append(event))])
    waiting = thread.hold(thread.shelf.find("other"))
    thread.end_replies()  # before the thread begins, so that nothing is over
    with working(thread):
        pass
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
    with working(thread):
        assert given_back.acquire(timeout=20)
        assert name != "_IDLE_S" or not given_back.acquire(timeout=0.1)
