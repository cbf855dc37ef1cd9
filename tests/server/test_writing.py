"""What a request hears of its replies: silence is told, a client that goes is noticed."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from mlxspec.params import GenerationParams
from mlxspec.trace.events import EmittedToken, GenerationFailed, PlainDecoded, PrefillProgress
from mlxspec_server import writing as writing_module
from mlxspec_server.asking import Ask
from mlxspec_server.body import Refusal
from mlxspec_server.tools.choice import ToolChoice
from mlxspec_server.writing import Writing
from tests.support.served import shelf


class Thread:
    """An engine thread that writes nothing."""

    def ask(self, loaded, tickets):
        self.tickets = tickets


class Client:
    def __init__(self, stays=10**9):
        self.looks_left = stays

    async def is_disconnected(self):
        self.looks_left -= 1
        return self.looks_left < 0


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(writing_module, "_LOOKS_EVERY_S", 0.02)
    models, thread = shelf(), Thread()
    loaded = models.load(models.main)
    yield (
        Writing(thread, loaded, Ask("", GenerationParams(max_tokens=9), True, prompts=[[5]])),
        thread,
    )
    models.close(loaded)


async def tell_often(thread, event):
    while True:
        await asyncio.sleep(0.005)
        thread.tickets[0].tell(event)


async def heard(asked, client, event, keep_alive_s=10.0):
    """Yield what a request hears while an event comes again and again."""
    writing, thread = asked
    async with aclosing(writing.pieces(client, keep_alive_s)) as pieces:
        telling = asyncio.ensure_future(tell_often(thread, event))
        try:
            async for some in pieces:
                yield some
        finally:
            telling.cancel()


def token_event(text="a"):
    return PlainDecoded(0, 0.0, (EmittedToken(1, text, "plain"),), 1.0, 1)


async def test_a_client_is_told_that_its_prompt_is_still_read(asked):
    read = PrefillProgress(0.0, 10, 20, 0)
    async for some in heard(asked, Client(), read, keep_alive_s=0.05):
        assert some == []
        return
    raise AssertionError("nothing was told")


async def test_a_client_that_goes_while_tokens_come_ends_its_reply(asked):
    async for some in heard(asked, Client(stays=1), token_event()):
        assert {piece.text for piece in some} == {"a"}
    assert asked[1].tickets[0].is_cancelled.is_set()


async def test_what_is_there_at_once_comes_at_once(asked):
    writing, thread = asked
    async with aclosing(writing.pieces(Client(), 10.0)) as pieces:
        first = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        for text in "abc":
            thread.tickets[0].tell(token_event(text))
        assert [piece.text for piece in await first] == ["a", "b", "c"]


async def test_a_reply_that_failed_says_why(asked):
    with pytest.raises(Refusal, match="too little memory"):
        async for _ in heard(asked, Client(), GenerationFailed(0.0, "too little memory")):
            pass


async def test_a_reply_that_may_have_one_call_ends_behind_it(asked):
    writing, thread = asked
    choice = ToolChoice([{"type": "function", "function": {"name": "go"}}], is_parallel=False)
    writing = Writing(thread, writing.loaded, replace(writing.ask, choice=choice))
    async with aclosing(writing.pieces(Client(), 10.0)) as pieces:
        first = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        thread.tickets[0].tell(token_event('<tool_call>\n{"name": "go", "arguments": {'))
        assert [piece.kind for piece in await first] == ["call", "arguments"]
        assert not thread.tickets[0].is_cancelled.is_set()
        thread.tickets[0].tell(token_event('}}\n</tool_call>\n<tool_call>\n{"name": "go"'))
        (rest,) = await anext(pieces)
        assert (rest.kind, rest.text) == ("arguments", "}")
        assert thread.tickets[0].is_cancelled.is_set()
