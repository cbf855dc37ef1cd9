"""A request whose reply fails is told so in the form of its API; the others do not notice."""

from concurrent.futures import Future

import pytest

from mlxspec.errors import GrammarError, NumericsError
from mlxspec.params import Grammar
from mlxspec.reply.continuation import Continuation
from mlxspec.trace.events import GenerationFailed, GenerationFinished, text_of
from tests.support.served import ASKED, prepared, serving, ticket, true_text, working

DEAD_END = GrammarError("the grammar cannot go on here")


@pytest.fixture
def fails(monkeypatch):
    """Lets replies fail after three tokens: those that `is_meant` is true of."""
    emit = Continuation.emit

    def begin(error, is_meant=lambda params: True):
        def failing(continuation, *args):
            if is_meant(continuation.params) and continuation.num_emitted > 2:
                raise error
            return emit(continuation, *args)

        monkeypatch.setattr(Continuation, "emit", failing)

    return begin


class Told:
    """A reply of the engine thread: its text, and the event of its end."""

    def __init__(self, loaded, name, **settings):
        self.text, self.end = "", Future()
        self.ticket = ticket(loaded, name, self.hear, **settings)

    def hear(self, event, logprobs):
        self.text += text_of(event)
        if isinstance(event, GenerationFinished | GenerationFailed):
            self.end.set_result(event)


@pytest.mark.parametrize("error", [DEAD_END, NumericsError("NaN"), KeyError("x")], ids=type)
def test_the_reply_of_one_client_fails_and_those_of_others_go_on(fails, error):
    fails(error, lambda params: params.grammar is not None)
    watched = []
    thread, loaded = prepared(lambda model, name, event: watched.append(event))
    bad = Told(loaded, "bad", grammar=Grammar.regex("[a-h]+"))
    good = [Told(loaded, name) for name in ("one", "two")]
    thread.ask(loaded, [good[0].ticket, bad.ticket, good[1].ticket])
    with working(thread):
        assert isinstance(bad.end.result(60), GenerationFailed)
        assert [one.end.result(60).reason for one in good] == ["length"] * 2
        assert [one.text for one in good] == [true_text("Hi")] * 2
        after = Told(loaded, "after")
        thread.ask(loaded, [after.ticket])
        after.end.result(60)
        assert after.text == true_text("Hi")
        assert thread.num_replies == 0
    assert sum(isinstance(event, GenerationFailed) for event in watched) == 1


@pytest.mark.parametrize(
    ("error", "status", "kinds"),
    [
        (DEAD_END, 400, {"invalid_request_error"}),
        (NumericsError("no numbers"), 500, {"server_error", "api_error"}),
    ],
)
def test_a_reply_that_fails_is_a_fault_of_the_request_or_of_the_server(error, status, kinds, fails):
    fails(error)
    with serving() as client:
        for path, body in ASKED.items():
            whole = client.post(path, json=body)
            streamed = client.post(path, json={**body, "stream": True})
            assert whole.status_code == status
            assert whole.json()["error"]["type"] in kinds
            assert str(error) in whole.json()["error"]["message"]
            last = streamed.text.removesuffix("\n\n").split("\n\n")[-1]
            assert str(error) in last
            assert any(kind in last for kind in kinds)


@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyError("a mistake of ours")])
def test_a_reply_that_ended_is_told_so_though_its_step_failed(error, fails, monkeypatch):
    """It has left the batch by then, and its client would wait for ever."""
    thread, loaded = prepared()
    bad, long = Told(loaded, "bad", grammar=Grammar.regex("[a-h]+")), Told(loaded, "long")
    fails(DEAD_END, lambda params: params.grammar is not None)
    batch = loaded.batch
    leave = batch._release

    def leaving():
        before = batch.num_replies
        leave()
        if batch.num_replies < before:
            raise error

    monkeypatch.setattr(batch, "_release", leaving)
    thread.ask(loaded, [bad.ticket, long.ticket])
    with working(thread):
        assert isinstance(bad.end.result(60), GenerationFailed)
        assert isinstance(long.end.result(60), GenerationFailed)
        assert thread.num_replies == 0
        after = Told(loaded, "after")
        thread.ask(loaded, [after.ticket])
        assert isinstance(after.end.result(60), GenerationFinished)
