"""Honest requests, and the whole reply to each as the library alone writes it: without drafts.

A request is taken only if its text stays the same when every logit is moved a little at random.
Else replies that share a forward could differ by rounding, and one that is mixed with another could
not be told from that.
"""

import json
from dataclasses import dataclass, replace
from random import Random

from mlxspec.params import GenerationParams, SamplingParams
from tests.campaigns.serving.asking import asked, events
from tests.campaigns.serving.load import numbered_prompts

MOVED = 1e-3  # nats: far above what rounding does to float32


@dataclass(frozen=True)
class Request:
    """An honest request, of a message or a text that goes on, and its true reply."""

    prompt: str
    is_chat: bool
    temperature: float
    seed: int
    max_tokens: int
    text: str = ""


def true_requests(engine, count, seed):
    """Return requests with their replies, greedy and sampled in turn."""
    draw, found = Random(seed), []
    for number, prompt in enumerate(numbered_prompts()):
        hot = 0.8 if number % 2 else 0.0
        request = Request(prompt, draw.random() < 0.7, hot, number, draw.randint(12, 40))
        text = _text(engine, request, {})
        moved = {token: draw.uniform(-MOVED, MOVED) for token in range(engine.target.vocab_size)}
        if text and text == _text(engine, request, moved):
            found.append(replace(request, text=text))
        if len(found) == count:
            return found
    raise AssertionError("prompts have no end")


def _text(engine, request, bias):
    sampling = SamplingParams(temperature=request.temperature, logit_bias=bias)
    params = GenerationParams(request.max_tokens, sampling, seed=request.seed)
    prompt = request.prompt
    if request.is_chat:
        prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    return engine.generate_text(prompt, params)


@dataclass(frozen=True)
class Route:
    """A route: what a request is called there, and where its documents have the text."""

    path: str
    prompt: str
    most: str
    text_of: object
    part_of: object


CHATS = (
    Route(
        "/v1/chat/completions",
        "messages",
        "max_tokens",
        lambda found: found["choices"][0]["message"]["content"],
        lambda row: row["choices"][0]["delta"].get("content"),
    ),
    Route(
        "/v1/messages",
        "messages",
        "max_tokens",
        lambda found: found["content"][0]["text"],
        lambda row: row.get("delta", {}).get("text"),
    ),
    Route(
        "/v1/responses",
        "input",
        "max_output_tokens",
        lambda found: found["output"][0]["content"][0]["text"],
        lambda row: row["delta"] if row["type"].endswith("output_text.delta") else "",
    ),
)
PLAIN = Route(
    "/v1/completions",
    "prompt",
    "max_tokens",
    lambda found: found["choices"][0]["text"],
    lambda row: row["choices"][0]["text"],
)


def reply_to(server, request, route, is_streamed):
    """Ask, read all, and return the text."""
    stated = request.prompt
    if route.prompt == "messages":
        stated = [{"role": "user", "content": stated}]
    how = {"temperature": request.temperature, "seed": request.seed, "stream": is_streamed}
    body = {"model": server.model, route.prompt: stated, route.most: request.max_tokens, **how}
    with asked(server.url, route.path, body) as response:
        if is_streamed:
            return "".join(route.part_of(row) or "" for row in events(response))
        return route.text_of(json.load(response))


def routes_of(request):
    """Return the routes on which a request can be asked."""
    return CHATS if request.is_chat else (PLAIN,)
