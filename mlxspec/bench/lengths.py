"""Measures the cost of a token by the length of the text before it: `mlxspec bench --context`.

Up to the model's context length a cache is a full one, beyond it a ring (a rotating cache).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from mlxspec.bench.arms import own_arms
from mlxspec.bench.prompts import read_questions
from mlxspec.device.backend import GB
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.errors import Say
from mlxspec.loading import LoadedModel
from mlxspec.measure.tables import cell, table
from mlxspec.params import GenerationParams, Options

RING = 4096
"""Rows of the rotating cache for contexts that are longer than the model's."""


def counts(text: str, name: str, example: str = "1k,8k") -> list[int]:
    """Return the numbers in a list such as "1k,8k", with k as 1024; the rest is for messages."""
    found = []
    for word in text.lower().split(","):
        digits, factor = (word[:-1], 1024) if word.endswith("k") else (word, 1)
        if not digits.strip().isdecimal() or int(digits) < 1:
            raise ValueError(f"{name} takes numbers, 1 or more, such as {example}; got {text!r}")
        found.append(int(digits) * factor)
    return found


@dataclass(frozen=True)
class ContextFigures:
    """The figures of a reply after a text of `context` tokens."""

    arm: str
    context: int
    cache: str
    prompt_s: float  # seconds to the first tokens, most of them for the prefill
    ms_per_token: float | None  # of later tokens, if there are any
    tokens_per_forward: float
    cache_gb: float
    own_memory_gb: float  # the most that prefill and reply added


def measure_context(
    loaded: LoadedModel,
    options: Options,
    arms: Sequence[str],
    length: int,
    params: GenerationParams,
    say: Say,
) -> list[ContextFigures]:
    """Return the figures of every arm after `length` tokens of text, which decide on the cache."""
    fits = length + params.max_tokens <= loaded.config.max_position_embeddings
    options = replace(options, max_kv_size=None if fits else RING)
    turns = [turn for question in read_questions() for turn in question.turns]
    prompt = list(islice(cycle(loaded.tokenizer.encode("\n\n".join(turns)) or [0]), length))
    found = []
    for name in arms:
        context = make_drafter_context(loaded, options, say)
        (arm,) = own_arms([name], context)
        reply = arm.write(prompt, replace(params, ignore_eos=True))
        later, cache = reply.later_tokens, context.target.cache
        found.append(
            ContextFigures(
                arm=arm.name,
                context=length,
                cache=cache.describe(),
                prompt_s=reply.ttft_s,
                ms_per_token=1e3 * reply.seconds / later if later else None,
                tokens_per_forward=len(reply.tokens) / reply.forwards,
                cache_gb=cache.nbytes / GB,
                own_memory_gb=reply.own_memory_gb,
            )
        )
    return found


def context_table(found: Sequence[ContextFigures]) -> str:
    """Return a table, one row per arm and length."""
    head = ["arm", "context", "cache", "first token, s", "ms/token", "tokens/forward"]
    rows = [[*head, "cache, GB", "in all, GB"]]
    for one in found:
        seconds = (cell(one.prompt_s, 1), cell(one.ms_per_token, 1), cell(one.tokens_per_forward))
        memory = (cell(one.cache_gb, 3), cell(one.own_memory_gb, 3))
        rows.append([one.arm, str(one.context), one.cache, *seconds, *memory])
    return table(rows)
