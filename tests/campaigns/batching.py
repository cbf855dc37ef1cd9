"""Tokens per second of many replies: one by one and in batches, ours and mlx-lm's.

    python -m tests.campaigns.batching --sequences 1,4,16 --max-tokens 64

All arms reply greedily to the same prompts over the same weights, in rotating order. The time runs
from the first prompt to the last token, prefill included, so a batch gains nothing if a reply
waits. The exit code is 1 if a reply differs from plain decoding and rounding does not explain it.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from statistics import median

import mlx.core as mx

from mlxspec.bench.lengths import counts
from mlxspec.bench.peers import mlx_lm_model, mlx_lm_tokenizer
from mlxspec.bench.prompts import read_questions
from mlxspec.device.core_split import left_to_blas
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.drafting.registry import DrafterContext, build_drafter
from mlxspec.errors import MlxspecError
from mlxspec.loading import load_model
from mlxspec.measure.lossless import first_difference
from mlxspec.measure.tables import table
from mlxspec.measure.trial import prompt_tokens, rotated, run_trial
from mlxspec.params import GenerationParams, Options
from mlxspec.trace.difference import Difference

SEQUENCES = "1,4,16"
DRAFTERS = ("none", "pool")
_PEER = "mlx-lm batch_generate"

Write = Callable[[Sequence[list[int]], GenerationParams], list[Sequence[int]]]
"""Replies to prompts; returns the tokens of each, with the stop token if the arm returns it."""


@dataclass(frozen=True)
class Speed:
    """The speed of an arm; `differences` are the first ones from the replies of the first arm."""

    arm: str
    num_sequences: int
    tokens_per_s: float
    differences: tuple[Difference, ...]


def make_arms(context: DrafterContext, drafters: Sequence[str] = DRAFTERS) -> dict[str, Write]:
    """Return our arms by name: replies one by one, then in a batch, with each drafter."""
    engine = context.engine

    def alone(
        drafter: str, prompts: Sequence[list[int]], params: GenerationParams
    ) -> list[Sequence[int]]:
        own = build_drafter(drafter, context)
        return [run_trial(engine, prompt, params, own).tokens for prompt in prompts]

    def together(
        drafter: str, prompts: Sequence[list[int]], params: GenerationParams
    ) -> list[Sequence[int]]:
        own, tokens = build_drafter(drafter, context), list[Sequence[int]]()
        for reply in engine.generate_batch(prompts, params, drafter=own, batch_size=len(prompts)):
            reply.raise_error()
            tokens.append(reply.tokens)
        return tokens

    return {
        f"{name}, {drafter}": partial(write, drafter)
        for name, write in (("one by one", alone), ("batch", together))
        for drafter in drafters
    }


def mlx_lm_arm(context: DrafterContext) -> Write:
    """Return mlx-lm's `batch_generate` over the arrays of our model; it drops stop tokens.

    Raises `ImportError` if mlx-lm is not installed.
    """
    batch_generate = import_module("mlx_lm.generate").batch_generate
    model, tokenizer = mlx_lm_model(context.loaded.model), mlx_lm_tokenizer(context)

    @left_to_blas()
    def write(prompts: Sequence[list[int]], params: GenerationParams) -> list[Sequence[int]]:
        size = max(len(prompts), 1)
        options = {"max_tokens": params.max_tokens, "completion_batch_size": size}
        answer = batch_generate(model, tokenizer, list(prompts), return_token_ids=True, **options)
        return list(answer.token_ids)

    return write


def measure(
    context: DrafterContext,
    arms: dict[str, Write],
    prompts: Sequence[list[int]],
    params: GenerationParams,
    repeats: int = 1,
) -> list[Speed]:
    """Return the speeds of all arms on the same prompts, and compare their replies.

    The first arm is the baseline; `params` must be greedy. Of `repeats` times, the median counts.
    """
    engine = context.engine
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    written: dict[str, list[Sequence[int]]] = {}
    for number in range(repeats):
        for name in rotated(list(arms), number):
            engine.target.reset()
            gc.collect()
            mx.clear_cache()
            start = time.perf_counter()
            written[name] = arms[name](prompts, params)
            seconds[name].append(time.perf_counter() - start)
    stops = {*engine.target.eos_token_ids, *context.loaded.tokenizer.eos_token_ids}
    standard = written[next(iter(arms))]
    tokens = sum(map(len, standard))  # the same text for all
    speeds = []
    for name in arms:
        found = [
            first_difference(
                engine, prompt, _cut(own, stops), _cut(other, stops), is_foreign=name == _PEER
            )
            for prompt, own, other in zip(prompts, written[name], standard, strict=True)
        ]
        rate = tokens / median(seconds[name])
        speeds.append(Speed(name, len(prompts), rate, tuple(filter(None, found))))
    return speeds


def _cut(tokens: Sequence[int], stops: set[int]) -> Sequence[int]:
    """Return a reply without its stop token, which mlx-lm drops."""
    return tokens[:-1] if tokens and tokens[-1] in stops else tokens


def as_text(speeds: Sequence[Speed]) -> str:
    """Return a table, one row per arm and one column per number of sequences, and differences."""
    first = {speed.num_sequences: speed.tokens_per_s for speed in reversed(speeds)}
    rows: dict[str, list[str]] = {}
    for speed in speeds:
        ratio = speed.tokens_per_s / first[speed.num_sequences]
        rows.setdefault(speed.arm, [speed.arm]).append(f"{speed.tokens_per_s:.1f} {ratio:.2f}x")
    parted = [
        f"{speed.arm}, {speed.num_sequences} sequences: {difference.describe()}"
        for speed in speeds
        for difference in speed.differences
    ]
    head = ["tokens/s", *(f"{count} seq" for count in sorted(first))]
    notes = parted or ["all replies are those of the first row"]
    return "\n".join([table([head, *rows.values()]), *notes])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.batching", description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--sequences", default=SEQUENCES, help=f"in a batch ({SEQUENCES})")
    parser.add_argument("--max-tokens", type=int, default=64, help="of a reply (64)")
    parser.add_argument("--repeat", type=int, default=1, help="timings of each arm (1)")
    args = parser.parse_args(argv)
    try:
        speeds = _speeds(args)
    except (ValueError, MlxspecError) as error:
        parser.error(str(error))
    print(as_text(speeds))
    return int(not all(found.is_near_tie for speed in speeds for found in speed.differences))


def _speeds(args: argparse.Namespace) -> list[Speed]:
    sizes = counts(args.sequences, "--sequences", SEQUENCES)
    params = GenerationParams(max_tokens=args.max_tokens)
    context = make_drafter_context(load_model(args.model), Options(drafter="none"), print)
    arms = make_arms(context)
    try:
        arms[_PEER] = mlx_lm_arm(context)
    except ImportError as error:
        print(f"mlx-lm is skipped ({error}): pip install mlx-lm")
    context.engine.measure_costs()
    prompts = own_prompts(context, max(sizes))
    measure(context, arms, prompts[:1], GenerationParams(max_tokens=min(8, args.max_tokens)))
    each = (measure(context, arms, prompts[:size], params, args.repeat) for size in sizes)
    return [speed for speeds in each for speed in speeds]


def own_prompts(context: DrafterContext, count: int) -> list[list[int]]:
    """Return the first turns of `count` built-in questions; they repeat from the beginning."""
    questions = islice(cycle(read_questions()), count)
    return [prompt_tokens(context.engine, question.turns[0]) for question in questions]


if __name__ == "__main__":
    sys.exit(main())
