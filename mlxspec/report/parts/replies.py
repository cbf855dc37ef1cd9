"""Measures a few replies of every drafter: speed, acceptance, and agreement with plain decoding.

The budget chooses the number of nodes, as in a chat. If a reply differs from plain decoding, its
gap is stored; the reader of the report decides whether rounding explains it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from mlxspec.bench.arms import PLAIN, own_arms
from mlxspec.bench.prompts import choose_questions, read_questions
from mlxspec.bench.run import Runner
from mlxspec.bench.sample import Arm, Reply, Task
from mlxspec.checking.greedy import GreedyCase, check_replies
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.drafting.registry import DrafterContext
from mlxspec.loading import load_model
from mlxspec.params import Options
from mlxspec.report.allowance import Allowance, Finding
from mlxspec.report.parts.lossless import agreement_dict, drafters_of

_NUM_QUESTIONS = 3  # one per category
_TASK = Task(max_tokens=96)
_WARM_UP_TOKENS = 4


class Noting:
    """An arm that stores its replies; each starts with a new drafter."""

    def __init__(self, arm: Arm) -> None:
        self.name = arm.name
        self.replies: list[Reply] = []
        self._arm = arm

    def begin(self) -> None:
        self._arm.begin()

    def write(self, prompt: Sequence[int], task: Task) -> Reply:
        self.begin()
        reply = self._arm.write(prompt, task)
        self.replies.append(reply)
        return reply

    def warm_up(self, prompt: Sequence[int]) -> None:
        """Write a few tokens that do not count: the first use compiles kernels, loads weights."""
        self._arm.write(prompt, replace(_TASK, max_tokens=_WARM_UP_TOKENS))


def measure(time: Allowance) -> Iterator[Finding]:
    """Yield the figures of plain decoding, then of each drafter."""
    context = make_drafter_context(load_model(), Options(), lambda line: None)
    context.engine.measure_costs()
    yield from replies_within(time, context)


def replies_within(time: Allowance, context: DrafterContext) -> Iterator[Finding]:
    """Yield the same as `measure`, for any target."""
    plain, *arms = [Noting(arm) for arm in own_arms([PLAIN, *drafters_of(context)], context)]
    prompts = _prompts(context)
    plain.warm_up(prompts[0][1])
    share = time.share(len(arms) + 1)
    cases = [
        GreedyCase(name, prompt, _TASK, plain.write(prompt, _TASK).tokens)
        for name, prompt in share.within(prompts)
    ]
    yield PLAIN, _figures(plain.replies)
    for number, arm in enumerate(arms):
        if time.is_over:
            return
        arm.warm_up(prompts[0][1])
        share = time.share(len(arms) - number)
        agreement = check_replies(context.engine, arm, share.within(cases), 0.0)
        yield arm.name, {**agreement_dict(agreement), **_figures(arm.replies)}


def _prompts(context: DrafterContext) -> list[tuple[str, tuple[int, ...]]]:
    """Return the names and tokens of some questions; the reply to the last one copies its text."""
    runner = Runner(context.engine, [], PLAIN)
    questions = choose_questions(read_questions(), limit=1)
    chosen = [*questions[: _NUM_QUESTIONS - 1], questions[-1]]
    return [
        (question.category, tuple(runner.prompt([{"role": "user", "content": question.turns[0]}])))
        for question in chosen
    ]


def _figures(replies: Sequence[Reply]) -> dict[str, Any]:
    forwards = sum(reply.forwards for reply in replies)
    speeds = [reply.later_tokens / reply.seconds for reply in replies if reply.seconds > 0]
    return {
        "replies": len(replies),
        "tokens_per_s": median(speeds) if speeds else None,
        "tokens_per_forward": sum(len(reply.tokens) for reply in replies) / max(forwards, 1),
        "first_tokens_s": median(reply.ttft_s for reply in replies),
        "peak_memory_gb": max(reply.peak_memory_gb for reply in replies),
        "own_memory_gb": max(reply.own_memory_gb for reply in replies),
    }
