"""The running replies to one request: sends tickets, receives events, makes pieces of them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from starlette.requests import Request

from mlxspec.errors import GrammarError, MlxspecError
from mlxspec.params import GenerationParams
from mlxspec.reply.job import Job
from mlxspec.text.reasoning import ChannelTracker
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished
from mlxspec_server.asking import Ask
from mlxspec_server.body import Refusal
from mlxspec_server.engine_thread import EngineThread, Ticket
from mlxspec_server.pieces import Piece, ReplyPieces, TokenLogprob
from mlxspec_server.shelf import Loaded
from mlxspec_server.tools.calls import demanded_grammar
from mlxspec_server.turns import Prompt, chat_prompt, raw_tokens

_FORBIDDEN = (
    "the grammar of the reply forbids the last message of the assistant, with which the reply goes "
    "on: leave out one of the two"
)
_LOOKS_EVERY_S = 0.25  # interval of checks for a disconnected client while nothing is sent
_UNCHECKED = "X-Mlxspec-Unchecked-Formats"  # of the schema
_MOST_NAMES = 1000  # characters
_ENDS = (GenerationFinished, GenerationFailed)

Delivery = tuple[int, Event, Sequence[TokenLogprob]]
"""The index of the reply, one of its events, and the logprobs of its tokens."""


class Writing:
    """The replies to a request; `name` is its id."""

    def __init__(self, thread: EngineThread, loaded: Loaded, ask: Ask) -> None:
        """Make the prompts and compile their grammar, in any thread; `pieces` starts them."""
        self.name = token_hex(12)
        self.ask, self.loaded = ask, loaded
        self._thread = thread
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        if ask.chat is None:
            prompts = [Prompt(raw_tokens(loaded, prompt)) for prompt in ask.prompts]
        else:
            prompts = [chat_prompt(loaded, ask.chat, ask.choice.tools, ask.params)]
        self.num_prompt_tokens = sum(len(prompt.tokens) for prompt in prompts)
        choice, params = ask.choice, ask.params
        format = loaded.tools if choice.tools else None
        if choice.demanded:
            params = replace(params, grammar=demanded_grammar(choice, format))
        unchecked = params.grammar.unchecked if params.grammar else ()
        names = ", ".join(quote(name) for name in unchecked)  # from a client: no newline may enter
        self.headers = {_UNCHECKED: names[:_MOST_NAMES]} if names else {}
        is_begun_read = params.grammar is not None and not choice.demanded
        jobs = [self._job(prompt, params, is_begun_read) for prompt in prompts]
        each = ask.num_replies // len(jobs)  # replies to a prompt
        self._makers: list[ReplyPieces] = []
        self._tickets: list[Ticket] = []
        for i in range(ask.num_replies):
            job, seed = jobs[i // each], (params.seed + i % each) % 2**64
            job = replace(job, params=replace(job.params, seed=seed))
            deliver = partial(self._deliver, i)
            self._makers.append(ReplyPieces(i, format, choice))
            self._tickets.append(Ticket(f"{self.name}-{i}", job, deliver, ask.num_logprobs))

    def _job(self, prompt: Prompt, params: GenerationParams, is_begun_read: bool) -> Job:
        """Return a checked job; with `is_begun_read`, its grammar reads the start of the reply."""
        engine = self.loaded.engine
        try:
            job = replace(engine.job(prompt.tokens, params), num_begun=prompt.num_begun)
        except (MlxspecError, ValueError) as error:
            raise Refusal(400, str(error)) from error
        return _read_begun(job, engine.tokenizer) if is_begun_read else job

    async def pieces(
        self, request: Request, keep_alive_s: float
    ) -> AsyncGenerator[Sequence[Piece], None]:
        """Yield the pieces of all replies as they arrive, and an empty list after every silence.

        If the client disconnects or the caller stops, the replies end before their next round.
        """
        self._loop = asyncio.get_running_loop()
        self._thread.ask(self.loaded, self._tickets)
        num_left = len(self._tickets)
        told_s = looked_s = time.monotonic()
        try:
            while num_left:
                delivered = await self._delivered()
                found = [piece for one in delivered for piece in self._pieces_of(*one)]
                now = time.monotonic()
                if now - looked_s >= _LOOKS_EVERY_S:
                    if await request.is_disconnected():
                        return
                    looked_s = now
                if found or now - told_s >= keep_alive_s:
                    num_left -= sum(piece.kind == "end" for piece in found)
                    told_s = now
                    yield found
        finally:
            for ticket in self._tickets:
                ticket.is_cancelled.set()

    async def _delivered(self) -> list[Delivery]:
        """Return the events since the last call; none after a short wait."""
        found: list[Delivery] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOKS_EVERY_S):
                found.append(await self._queue.get())
        while not self._queue.empty():
            found.append(self._queue.get_nowait())
        return found

    def _pieces_of(self, index: int, event: Event, logprobs: Sequence[TokenLogprob]) -> list[Piece]:
        if isinstance(event, GenerationFailed):
            is_asked_for = isinstance(self._tickets[index].error, GrammarError)
            raise Refusal(400 if is_asked_for else 500, event.message)
        maker = self._makers[index]
        pieces = maker.of(event, logprobs)
        if maker.splitter is not None and maker.splitter.is_over:  # it sends no further text
            self._tickets[index].is_cancelled.set()
        return pieces

    def _deliver(self, index: int, event: Event, logprobs: Sequence[TokenLogprob]) -> None:
        assert self._loop is not None, "the replies were begun"
        if not (logprobs or hasattr(event, "emit") or isinstance(event, _ENDS)):
            return  # the event is not sent to clients
        with suppress(RuntimeError):  # the loop is closed: there is no reader
            item = (index, event, logprobs)
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)


def _read_begun(job: Job, tokenizer: Tokenizer) -> Job:
    """Return a job whose matchers have read the text that the reply continues."""
    assert job.matcher is not None, "a reply with a grammar has matchers"
    at = len(job.prompt) - job.num_begun
    channels = ChannelTracker(tokenizer.reasoning, job.prompt[:at], tokenizer.token_bytes)
    answer = [token for token in job.prompt[at:] if channels.next(token) == "answer"]
    if job.matcher().try_consume_tokens(answer) < len(answer):
        raise Refusal(400, _FORBIDDEN, "messages")
    return replace(job, matcher=partial(_read, job.matcher, answer))


def _read(matcher: Callable[[], Any], tokens: list[int]) -> Any:
    found = matcher()
    found.try_consume_tokens(tokens)
    return found
