"""What the server costs one client: the same replies by the library alone, prompt by prompt.

The library writes in this process while the server is idle, and the other way round; which of them
is first changes with each prompt. Times of both are from the messages to the end of the text.
"""

import statistics
import time
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import mlxspec
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams
from mlxspec.trace.events import text_of
from tests.campaigns.serving.asking import chat_body, told
from tests.campaigns.serving.figures import table
from tests.campaigns.serving.load import numbered_prompts, our_flags
from tests.campaigns.serving.model import dtype_of, model_folder
from tests.campaigns.serving.process import Served, served


@dataclass(frozen=True)
class Timed:
    """A reply, and how long it took.

    Attributes:
        text: Its text.
        tokens: Its tokens.
        seconds: From the messages to the end.
    """

    text: str
    tokens: int
    seconds: float


def run(args: Namespace) -> dict[str, Any]:
    """Measure the library and one client of the server."""
    prompts = numbered_prompts()
    with model_folder(args.model) as folder, served(our_flags(folder, args)) as server:
        dtype = dtype_of(folder)
        with mlxspec.load(folder, drafter=args.drafter, dtype=dtype) as engine:
            for arm in (_alone, _served):  # loads and compiles
                arm(engine, server, next(prompts), 8)
            pairs = [
                _pair(engine, server, next(prompts), args.tokens, index)
                for index in range(args.requests * args.repeats)
            ]
    return _told(pairs)


def _pair(
    engine: Engine, server: Served, prompt: str, tokens: int, index: int
) -> tuple[Timed, Timed]:
    """Return the reply of the library and that of the server."""
    order = [_alone, _served] if index % 2 == 0 else [_served, _alone]
    found = {arm: arm(engine, server, prompt, tokens) for arm in order}
    return found[_alone], found[_served]


def _alone(engine: Engine, server: Served, prompt: str, tokens: int) -> Timed:
    begin = time.perf_counter()
    chat = engine.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    text, written = "", 0
    for event in engine.generate(chat, GenerationParams(max_tokens=tokens)):
        text += text_of(event)
        written += len(getattr(event, "emit", ()))
    return Timed(text, written, time.perf_counter() - begin)


def _served(engine: Engine, server: Served, prompt: str, tokens: int) -> Timed:
    reply = told(server.url, chat_body(server.model, prompt, tokens))
    return Timed(reply.text, reply.tokens, reply.total_s)


def _told(pairs: list[tuple[Timed, Timed]]) -> dict[str, Any]:
    """Print the table; return it with the loss."""
    rows = []
    for name, own in (
        ("library alone", [alone for alone, _ in pairs]),
        ("server, one client", [reply for _, reply in pairs]),
    ):
        tokens, seconds = sum(one.tokens for one in own), sum(one.seconds for one in own)
        rows.append({"arm": name, "replies": len(own), "tokens/s": tokens / seconds})
    ratios = [alone.seconds / served.seconds for alone, served in pairs]
    loss = 100 * (1 - statistics.median(ratios))
    print(table(rows))
    print(f"\nlost: {loss:.1f} %, the median of {len(ratios)} prompts")
    num_same = sum(alone.text == served.text for alone, served in pairs)
    print(f"{num_same} of {len(pairs)} texts are the same")
    percents = [100 * (1 - ratio) for ratio in ratios]
    is_good = num_same == len(pairs)
    return {"rows": rows, "lost %": loss, "lost % by prompt": percents, "is_good": is_good}
