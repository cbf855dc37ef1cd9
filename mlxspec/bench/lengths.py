"""Measures the cost of a round by the length of the text before it, with and without a ring.

    python -m mlxspec.bench.lengths --lengths 1k,8k,32k,100k --steady 2000

Up to the model's context length the cache is a full one, beyond it a ring (a rotating cache). The
rows hold random keys and values: a prefill of 100,000 tokens takes minutes, and the values do not
change the cost of attention. `steadiness` measures a real reply: it is long, its ring is small, and
the first tenth of its rounds is compared with the last.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import mlx.core as mx

from mlxspec.api import load
from mlxspec.bench.context import WINDOW, context_lengths
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.drafts.tree import DraftTree
from mlxspec.engine.engine import Engine
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import Cache, make_cache
from mlxspec.loading import load_model
from mlxspec.measure.tables import cell, table
from mlxspec.models import Model
from mlxspec.params import GenerationParams
from mlxspec.trace.events import DraftVerified, PlainDecoded

WIDTHS = (1, 4, 8, 16)
_FILLED_AT_ONCE = 512
_REPEATS = 7
_PROMPT = "Once upon a time"
_MB = 1e6


@dataclass(frozen=True)
class ContextCost:
    """The cost of a round after a text of `length` tokens.

    `ms` are median milliseconds of a round by its rows; it commits one row.
    """

    length: int
    cache: str
    cache_bytes: int
    ms: dict[int, float]


@dataclass(frozen=True)
class Steadiness:
    """The first and the last tenth of a long reply's rounds, counted from when its ring is full.

    Milliseconds are medians per round. Bytes are MLX's memory after the first tenth and at the end.
    `tokens` counts the whole reply.
    """

    tokens: int
    rounds: int
    first_ms: float
    last_ms: float
    first_bytes: int
    last_bytes: int


def context_costs(
    model: Model,
    lengths: Sequence[int],
    *,
    ring: int = WINDOW,
    kv_bits: int | None = None,
    widths: Sequence[int] = WIDTHS,
    repeats: int = _REPEATS,
) -> list[ContextCost]:
    """Time rounds after texts of some lengths; lengths and widths take turns.

    A ring of `ring` rows is used beyond the model's context length. `kv_bits` is 8 or 4, or None
    for no quantisation. One timing before the `repeats` is not counted.
    """
    most = model.config.max_position_embeddings
    decoders = []
    for length in lengths:
        size = ring if length + max(widths) + repeats * len(widths) > most else None
        cache = make_cache(model.config, max_kv_size=size, kv_bits=kv_bits)
        decoders.append(Decoder(model, filled(cache, model, length)))
    arms = [(number, width) for width in widths for number in range(len(lengths))]
    timings: dict[tuple[int, int], list[float]] = {arm: [] for arm in arms}
    for _ in range(repeats + 1):
        for number, width in arms:
            timings[number, width].append(_round_ms(decoders[number], width))
    return [
        ContextCost(
            length,
            decoder.cache.describe(),
            decoder.cache.nbytes,
            {width: median(timings[number, width][1:]) for width in widths},
        )
        for number, (length, decoder) in enumerate(zip(lengths, decoders, strict=True))
    ]


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


def _round_ms(decoder: Decoder, width: int) -> float:
    tree = DraftTree.from_lists([0] * width, range(-1, width - 1))
    start = time.perf_counter()
    backend.sync(decoder.logits(decoder.forward_tree(tree)))
    decoder.commit([0])
    return (time.perf_counter() - start) * 1e3


def steadiness(engine: Engine, num_tokens: int, prompt: str = _PROMPT) -> Steadiness:
    """Let an engine write a reply of `num_tokens` tokens, and compare its first and last rounds.

    Raises `ValueError` if the tokens do not fill the engine's ring.
    """
    params = GenerationParams(max_tokens=num_tokens, ignore_eos=True)
    ends, held, tokens = [], [], 0
    room = engine.target.cache.max_size or 0
    for event in engine.generate(prompt, params):
        if isinstance(event, DraftVerified | PlainDecoded):
            tokens += len(event.emit)
            if event.context > room:
                ends.append(event.ts)
                held.append(mx.get_active_memory())
    took = [(end - start) * 1e3 for start, end in pairwise(ends)]
    if not took:
        raise ValueError(
            f"{num_tokens} tokens are too few to fill a ring of {room} rows: write more tokens, or "
            "use a smaller ring"
        )
    tenth = max(1, len(took) // 10)
    return Steadiness(
        tokens=tokens,
        rounds=len(held),
        first_ms=median(took[:tenth]),
        last_ms=median(took[-tenth:]),
        first_bytes=held[tenth],
        last_bytes=held[-1],
    )


def as_text(costs: Sequence[ContextCost]) -> str:
    """Return a table."""
    head = ["tokens", "cache", "cache, MB", *(f"{width} rows, ms" for width in costs[0].ms)]
    rows = [
        [
            *(str(cost.length), cost.cache, cell(cost.cache_bytes / _MB, 1)),
            *(cell(ms, 1) for ms in cost.ms.values()),
        ]
        for cost in costs
    ]
    return table([head, *rows])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m mlxspec.bench.lengths", description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--lengths", default="1k,8k,32k,100k", help="of the text, in tokens")
    parser.add_argument("--ring", type=int, default=WINDOW, help=f"rows of a ring ({WINDOW})")
    parser.add_argument("--kv-bits", type=int, help="4 or 8")
    parser.add_argument(
        "--steady", type=int, metavar="TOKENS", help="also write a reply of this length"
    )
    parser.add_argument("--steady-ring", type=int, default=256, help="rows of its ring (256)")
    parser.add_argument("--drafter", default="none", help="its drafter (none)")
    args = parser.parse_args(argv)
    try:
        _measure(args)
    except (ValueError, MlxspecError) as error:
        parser.error(str(error))
    return 0


def _measure(args: argparse.Namespace) -> None:
    model = load_model(args.model).own
    costs = context_costs(
        model, context_lengths(args.lengths), ring=args.ring, kv_bits=args.kv_bits
    )
    print(as_text(costs))
    if args.steady:
        engine = load(args.model, drafter=args.drafter, max_kv_size=args.steady_ring)
        found = steadiness(engine, args.steady)
        print(
            f"{found.tokens} tokens, {engine.target.cache.describe()}, {found.rounds} rounds since "
            f"it was full: {found.first_ms:.1f} ms each in the first tenth, {found.last_ms:.1f} in "
            f"the last; {found.first_bytes / _MB:.1f} MB, then {found.last_bytes / _MB:.1f}"
        )


if __name__ == "__main__":
    sys.exit(main())
