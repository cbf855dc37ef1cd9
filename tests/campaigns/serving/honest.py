"""Honest requests, and the whole reply to each as the library alone writes it: without drafts.

A request is taken only if its text stays the same when every logit is moved a little at random.
Else replies that share a forward could differ by rounding, and one that is mixed with another could
not be told from that.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams, SamplingParams
from tests.campaigns.serving.asking import events, opened
from tests.campaigns.serving.load import numbered_prompts
from tests.campaigns.serving.process import Served

MOVED = 1e-3  # nats: far above what rounding does to float32
_TOKENS = (12, 40)
_HOT = 0.8


@dataclass(frozen=True)
class Request:
    """An honest request and its true reply.

    Attributes:
        prompt: The user's message, or the text that goes on.
        is_chat: Whether it is a message.
        temperature: 0 for a greedy reply.
        seed: Seed of a sampled one.
        max_tokens: Its longest reply.
        text: The reply of the library.
    """

    prompt: str
    is_chat: bool
    temperature: float
    seed: int
    max_tokens: int
    text: str = ""


def true_requests(engine: Engine, count: int, seed: int) -> list[Request]:
    """Return requests with their replies, greedy and sampled in turn."""
    draw, found = Random(seed), []
    for number, prompt in enumerate(numbered_prompts()):
        hot = _HOT if number % 2 else 0.0
        request = Request(prompt, draw.random() < 0.7, hot, number, draw.randint(*_TOKENS))
        text = _text(engine, request)
        moved = {token: draw.uniform(-MOVED, MOVED) for token in range(engine.target.vocab_size)}
        if text and text == _text(engine, request, moved):
            found.append(replace(request, text=text))
        if len(found) == count:
            return found
    raise AssertionError("prompts have no end")


def _text(engine: Engine, request: Request, bias: dict[int, float] | None = None) -> str:
    sampling = SamplingParams(temperature=request.temperature, logit_bias=bias or {})
    params = GenerationParams(request.max_tokens, sampling, seed=request.seed)
    prompt: Any = request.prompt
    if request.is_chat:
        prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    return engine.generate_text(prompt, params)


@dataclass(frozen=True)
class Route:
    """A route, and where its documents have the text.

    Attributes:
        path: Its path.
        most: Name of the field with the most tokens.
    """

    path: str
    most: str = "max_tokens"

    def body(self, request: Request, model: str, *, is_streamed: bool) -> dict[str, Any]:
        """Return the body of a request."""
        text: Any = request.prompt
        name = {"/v1/completions": "prompt", "/v1/responses": "input"}.get(self.path, "messages")
        stated = [{"role": "user", "content": text}] if name == "messages" else text
        how = {"temperature": request.temperature, "seed": request.seed, "stream": is_streamed}
        return {"model": model, name: stated, self.most: request.max_tokens, **how}

    def text_of(self, document: dict[str, Any]) -> str:
        """Return the text of a whole reply."""
        return str(_WHOLE[self.path](document))

    def part_of(self, row: dict[str, Any]) -> str:
        """Return the text that an event of a stream adds."""
        return str(_PARTS[self.path](row) or "")


CHATS = (
    Route("/v1/chat/completions"),
    Route("/v1/messages"),
    Route("/v1/responses", "max_output_tokens"),
)
PLAIN = Route("/v1/completions")
_WHOLE = {
    "/v1/chat/completions": lambda found: found["choices"][0]["message"]["content"],
    "/v1/completions": lambda found: found["choices"][0]["text"],
    "/v1/messages": lambda found: found["content"][0]["text"],
    "/v1/responses": lambda found: found["output"][0]["content"][0]["text"],
}
_PARTS = {
    "/v1/chat/completions": lambda row: row["choices"][0]["delta"].get("content"),
    "/v1/completions": lambda row: row["choices"][0]["text"],
    "/v1/messages": lambda row: row.get("delta", {}).get("text"),
    "/v1/responses": lambda row: row["delta"] if row["type"].endswith("output_text.delta") else "",
}


def reply_to(server: Served, request: Request, route: Route, *, is_streamed: bool) -> str:
    """Ask, read all, and return the text."""
    body = route.body(request, server.model, is_streamed=is_streamed)
    connection, response = opened(server.url, route.path, body)
    with closing(connection):
        if is_streamed:
            return "".join(map(route.part_of, events(response)))
        return route.text_of(json.load(response))


def routes_of(request: Request) -> Sequence[Route]:
    """Return the routes on which a request can be asked."""
    return CHATS if request.is_chat else (PLAIN,)


def all_ways(requests: Sequence[Request]) -> Iterator[tuple[Request, Route, bool]]:
    """Yield each request on each of its routes, streamed and not."""
    for request in requests:
        yield from product([request], routes_of(request), (False, True))
