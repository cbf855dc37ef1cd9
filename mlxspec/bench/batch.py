"""Tokens per second of many replies: one by one and in batches, ours and mlx-lm's.

    python -m mlxspec.bench.batch --sequences 1,4,16 --max-tokens 64

All arms reply greedily to the same prompts over the same weights, in rotating order. The time runs
from the first prompt to the last token, prefill included, so a batch gains nothing if a reply
waits. Replies must be the same as those of plain decoding, one by one. Where they differ, the gap
between the target's logits of the two tokens shows whether rounding explains it. If not, the exit
code is 1.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import cycle, islice
from statistics import median

import mlx.core as mx

from mlxspec.batch import DEFAULT_ROWS_PER_ROUND
from mlxspec.bench.peers import INSTALL, mlx_lm_model, mlx_lm_tokenizer
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

Write = Callable[[Sequence[list[int]], GenerationParams], list[list[int]]]
"""Replies to prompts; returns the tokens of each, with the stop token if the arm returns it."""


@dataclass(frozen=True)
class Speed:
    """The speed of an arm at one number of sequences.

    Attributes:
        num_sequences: Number of replies.
        tokens: Number of tokens in all replies.
        seconds: Median seconds from the first prompt to the last token.
        differences: First differences from the replies of the first arm.
    """

    arm: str
    num_sequences: int
    tokens: int
    seconds: float
    differences: tuple[Difference, ...]

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


def make_arms(
    context: DrafterContext, drafters: Sequence[str] = DRAFTERS, *, rows_per_round: int
) -> dict[str, Write]:
    """Return our arms by name: replies one by one, then in a batch, with each drafter."""
    arms: dict[str, Write] = {}
    for drafter in drafters:
        arms[f"one by one, {drafter}"] = _one_by_one(context, drafter)
    for drafter in drafters:
        arms[f"batch, {drafter}"] = _batch(context, drafter, rows_per_round)
    return arms


def _one_by_one(context: DrafterContext, drafter: str) -> Write:
    def write(prompts: Sequence[list[int]], params: GenerationParams) -> list[list[int]]:
        own = build_drafter(drafter, context)
        replies = (run_trial(context.engine, prompt, params, own) for prompt in prompts)
        return [list(reply.tokens) for reply in replies]

    return write


def _batch(context: DrafterContext, drafter: str, rows_per_round: int) -> Write:
    def write(prompts: Sequence[list[int]], params: GenerationParams) -> list[list[int]]:
        replies = context.engine.generate_batch(
            prompts,
            params,
            drafter=build_drafter(drafter, context),
            batch_size=len(prompts),
            rows_per_round=rows_per_round,
        )
        tokens = []
        for reply in replies:
            reply.raise_error()
            tokens.append(list(reply.tokens))
        return tokens

    return write


def mlx_lm_arm(context: DrafterContext) -> Write:
    """Return mlx-lm's `batch_generate` over the arrays of our model; it drops stop tokens.

    Raises `ImportError` if mlx-lm is not installed.
    """
    batch_generate = import_module("mlx_lm.generate").batch_generate
    model, tokenizer = mlx_lm_model(context.loaded.model), mlx_lm_tokenizer(context)

    @left_to_blas()
    def write(prompts: Sequence[list[int]], params: GenerationParams) -> list[list[int]]:
        count = max(len(prompts), 1)
        answer = batch_generate(
            model,
            tokenizer,
            list(prompts),
            max_tokens=params.max_tokens,
            return_token_ids=True,
            completion_batch_size=count,
        )
        return [list(tokens) for tokens in answer.token_ids]

    return write


def measure(
    context: DrafterContext,
    arms: dict[str, Write],
    prompts: Sequence[list[int]],
    params: GenerationParams,
    repeats: int = 1,
) -> list[Speed]:
    """Return the speeds of all arms on the same prompts, and compare their replies.

    The first arm is the baseline; `params` must be greedy; each arm is timed `repeats` times.
    """
    names = list(arms)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    written: dict[str, list[list[int]]] = {}
    for number in range(repeats):
        for name in rotated(names, number):
            context.engine.target.reset()
            gc.collect()
            mx.clear_cache()
            start = time.perf_counter()
            written[name] = arms[name](prompts, params)
            seconds[name].append(time.perf_counter() - start)
    stops = {*context.engine.target.eos_token_ids, *context.loaded.tokenizer.eos_token_ids}
    texts = {name: [_without(stops, own) for own in written[name]] for name in names}
    expected = texts[names[0]]
    speeds = []
    for name in names:
        triples = zip(prompts, texts[name], expected, strict=True)
        found = (
            first_difference(context.engine, *triple, is_foreign=name == _PEER)
            for triple in triples
        )
        tokens = sum(map(len, written[names[0]]))  # the same text for all
        differences = tuple(difference for difference in found if difference)
        speeds.append(Speed(name, len(prompts), tokens, median(seconds[name]), differences))
    return speeds


def _without(stops: set[int], tokens: list[int]) -> list[int]:
    return tokens[:-1] if tokens and tokens[-1] in stops else tokens


def as_text(speeds: Sequence[Speed]) -> str:
    """Return a table, one row per arm and one column per number of sequences, and differences."""
    counts = sorted({speed.num_sequences for speed in speeds})
    first = {speed.num_sequences: speed for speed in reversed(speeds)}
    rows: dict[str, list[str]] = {}
    for speed in speeds:
        ratio = speed.tokens_per_s / first[speed.num_sequences].tokens_per_s
        rows.setdefault(speed.arm, []).append(f"{speed.tokens_per_s:.1f} {ratio:.2f}x")
    head = ["tokens/s", *(f"{count} seq" for count in counts)]
    parted = [
        f"{speed.arm}, {speed.num_sequences} sequences: {difference.describe()}"
        for speed in speeds
        for difference in speed.differences
    ]
    body = table([head, *([arm, *cells] for arm, cells in rows.items())])
    return "\n".join([body, *(parted or ["all replies are those of the first row"])])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m mlxspec.bench.batch", description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--sequences", default=SEQUENCES, help=f"in a batch ({SEQUENCES})")
    parser.add_argument("--max-tokens", type=int, default=64, help="of a reply (64)")
    parser.add_argument("--repeat", type=int, default=1, help="timings of each arm (1)")
    parser.add_argument(
        "--rows-per-round",
        type=int,
        default=DEFAULT_ROWS_PER_ROUND,
        help=f"that drafts may fill ({DEFAULT_ROWS_PER_ROUND})",
    )
    args = parser.parse_args(argv)
    try:
        return _measure(args)
    except (ValueError, MlxspecError) as error:
        parser.error(str(error))


def _measure(args: argparse.Namespace) -> int:
    counts = parse_counts(args.sequences)
    params = GenerationParams(max_tokens=args.max_tokens)
    context = make_drafter_context(load_model(args.model), Options(drafter="none"), print)
    arms = make_arms(context, rows_per_round=args.rows_per_round)
    try:
        arms[_PEER] = mlx_lm_arm(context)
    except ImportError as error:
        print(f"mlx-lm is skipped ({error}): {INSTALL['mlx-lm']}")
    context.engine.measure_costs()
    prompts = own_prompts(context, max(counts))
    measure(context, arms, prompts[:1], GenerationParams(max_tokens=min(8, args.max_tokens)))
    speeds: list[Speed] = []
    for count in counts:
        speeds += measure(context, arms, prompts[:count], params, args.repeat)
    print(as_text(speeds))
    differences = (difference for speed in speeds for difference in speed.differences)
    return int(not all(difference.is_near_tie for difference in differences))


def own_prompts(context: DrafterContext, count: int) -> list[list[int]]:
    """Return the first turns of `count` built-in questions; they repeat from the beginning."""
    questions = islice(cycle(read_questions()), count)
    return [prompt_tokens(context.engine, question.turns[0]) for question in questions]


def parse_counts(text: str) -> list[int]:
    """Return the numbers, 1 or more, in a list such as "1,4,16"; else raise `ValueError`."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not word.isdecimal() or not int(word):
            raise ValueError(f"{word!r} is not a number of sequences such as 4")
    return [int(word) for word in words]


if __name__ == "__main__":
    sys.exit(main())
