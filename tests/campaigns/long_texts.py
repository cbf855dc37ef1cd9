"""Times rounds behind long texts: by hand.

    python -m tests.campaigns.long_texts --lengths 1k,8k,32k,100k

The keys and values are random, because a prefill of 100,000 tokens takes minutes. Up to the model's
context length a cache is a full one, beyond it a ring (a rotating cache).
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.bench.lengths import RING, counts
from mlxspec.budget.cost import cost_curve, verify_forward
from mlxspec.decoder.decoder import Decoder
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import Cache, make_cache
from mlxspec.loading import load_model
from mlxspec.measure.tables import cell, table
from mlxspec.models import Model
from mlxspec.params import Options

WIDTHS = (1, 4, 8, 16)
_FILLED_AT_ONCE = 512


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
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.long_texts", description=__doc__
    )
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
