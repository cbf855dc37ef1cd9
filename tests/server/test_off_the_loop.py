"""What takes long in one request stops no other one: it is not done on the event loop."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mlxspec.grammar.compiled import Grammars
from mlxspec.text.tokenizer import Tokenizer
from tests.support.served import MESSAGES, serving, true_text

PATH = "/v1/chat/completions"
SLOW = {"messages": [{"role": "user", "content": "SLOW"}]}
SCHEMA = {"response_format": {"type": "json_schema", "schema": {"enum": [12, 21]}}}


@pytest.mark.parametrize(
    ("part", "name", "is_slow", "body"),
    [
        (Tokenizer, "encode", lambda text: "SLOW" in text, SLOW),
        (Grammars, "matcher", lambda grammar: grammar is not None, {**SLOW, **SCHEMA}),
    ],
)
def test_a_stream_goes_on_meanwhile(monkeypatch, part, name, is_slow, body):
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
        stream = client.post(PATH, json={"messages": MESSAGES, "stream": True})
        may_end.set()
        assert slow.result().status_code == 200
    assert was_told[0], "the stream waited for the other request"
    assert true_text(MESSAGES)[:1] in stream.text
