"""Measures the cost of a token, and of a round, by the length of the text before it.

`mlxspec bench --context` lets arms reply; `python -m mlxspec.bench.lengths` times single rounds
over random keys and values, because a prefill of 100,000 tokens takes minutes. Up to the model's
context length a cache is a full one, beyond it a ring (a rotating cache).
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import mlx.core as mx

from mlxspec.bench.arms import own_arms
from mlxspec.bench.prompts import read_questions
from mlxspec.budget.cost import cost_curve, verify_forward
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.backend import GB
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.errors import MlxspecError, Say
from mlxspec.kv.cache import Cache, make_cache
from mlxspec.loading import LoadedModel, load_model
from mlxspec.measure.tables import cell, table
from mlxspec.models import Model
from mlxspec.params import GenerationParams, Options

RING = 4096
"""Rows of the rotating cache for contexts that are longer than the model's."""

WIDTHS = (1, 4, 8, 16)
_FILLED_AT_ONCE = 512


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


@dataclass(frozen=True)
class ContextCost:
    """The cost of a round after a text of `length` tokens."""

    length: int
    cache: str
    cache_bytes: int
    ms: Mapping[int, float]  # the median, by rows of the round


def context_costs(
    model: Model,
    lengths: Sequence[int],
    *,
    ring: int = RING,
    widths: Sequence[int] = WIDTHS,
) -> list[ContextCost]:
    """Time rounds after texts of some lengths."""
    costs = []
    for length in lengths:
        fits = length + max(widths) <= model.config.max_position_embeddings
        cache = make_cache(model.config, Options(max_kv_size=None if fits else ring))
        decoder = Decoder(model, filled(cache, model, length))
        curve = cost_curve(verify_forward(decoder), widths, repeats=7)
        costs.append(ContextCost(length, cache.describe(), cache.nbytes, curve.ms))
    return costs


def filled(cache: Cache, model: Model, length: int) -> Cache:
    """Commit `length` rows of random keys and values to an empty cache and return it."""
    config = model.config
    shape = (1, config.num_key_value_heads, _FILLED_AT_ONCE, config.head_dim)
    dtype = model.embed(mx.array([0])).dtype
    keys, values = (mx.random.normal(shape, key=mx.random.key(i)).astype(dtype) for i in (0, 1))
    for start in range(0, length, _FILLED_AT_ONCE):
        count = min(_FILLED_AT_ONCE, length - start)
        for layer in range(config.num_hidden_layers):
            cache.stage(layer, keys[:, :, :count], values[:, :, :count])
        cache.commit(range(count))
        mx.eval(cache.arrays)
    return cache


def as_text(costs: Sequence[ContextCost]) -> str:
    """Return a table, one row per length."""
    rows = [["tokens", "cache", "cache, MB", *(f"{width} rows, ms" for width in costs[0].ms)]]
    for cost in costs:
        figures = (cost.cache_bytes / 1e6, *cost.ms.values())
        rows.append([str(cost.length), cost.cache, *(cell(figure, 1) for figure in figures)])
    return table(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m mlxspec.bench.lengths", description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--lengths", default="1k,8k,32k,100k", help="of the text, in tokens")
    args = parser.parse_args(argv)
    try:
        model, lengths = load_model(args.model).own, counts(args.lengths, "--lengths")
        print(as_text(context_costs(model, lengths)))
    except (ValueError, MlxspecError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
