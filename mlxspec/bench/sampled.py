"""Checks whether the first tokens of sampled replies have the target's joint distribution.

Samples come from the whole vocabulary; they are counted in cells. After every prefix each of the
most probable tokens has a cell of its own, and the others share one. The three most probable tokens
are prefixes themselves, up to the third token. The probabilities of the cells are exact: the target
reads every prefix row by row, without drafts, and NumPy computes probabilities in float64. The
engine samples with one seed after the other, as for any reply, and stops after the third token.
With every drafter the samples must have that distribution. No filter cuts tokens off: at the edge
of a filter, rounding could move whole probabilities.

Tokens that a grammar forbids have no probability, and a forced token is not a sample: a cell then
has three tokens that were chosen, and the forced ones between them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import mlx.core as mx
import numpy as np

from mlxspec.budget import Budget
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.grammar.constraint import Allowed, Constraint
from mlxspec.measure.chi_square import Fit, fit, pooled
from mlxspec.measure.trial import Trial, run_trial
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.trace.difference import common_length

LENGTH = 3
SAMPLING = SamplingParams(temperature=1.0)
OTHER = -1
"""Marks the cell of all tokens without a cell of their own."""

MOST_FORCED = 48
"""Maximum number of forced tokens in a cell; a longer text ends there."""

_NUM_OWN_CELLS, _NUM_FOLLOWED = 16, 3

_ERROR_RATE = 1e-4
"""Probability that a run fails although nothing is wrong; its tests share it (Bonferroni)."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class JointDistribution:
    """The joint distribution of the first tokens after a prompt.

    A cell of `probs` is the first tokens of a sample, with at most `LENGTH` that were chosen; the
    last of them may be `OTHER`.
    """

    probs: Mapping[Tokens, float]

    def cell_of(self, drawn: Tokens) -> Tokens:
        """Return the cell of a sample of `length` tokens, fewer if its reply ended."""
        for length in range(1, len(drawn) + 1):
            if drawn[:length] in self.probs:
                return drawn[:length]
            if drawn[:length] not in self._followed:
                return (*drawn[: length - 1], OTHER)
        raise AssertionError("a draw is longer than every cell")

    @cached_property
    def length(self) -> int:
        """Number of tokens of the longest cell."""
        return max(map(len, self.probs))

    @cached_property
    def _followed(self) -> frozenset[Tokens]:
        return frozenset(cell[:length] for cell in self.probs for length in range(1, len(cell)))


@dataclass(frozen=True)
class Case:
    """One exact distribution of the tokens after a prompt, to sample from with these seeds."""

    prompt: Tokens
    distribution: JointDistribution
    num_nodes: int
    seeds: range


@dataclass(frozen=True)
class DistributionCheck:
    """The samples with one drafter, compared with the exact distribution.

    `drafted` and `accepted` count draft nodes, `num_faults` samples in which the drafter failed.
    """

    drafter: str
    fit: Fit
    drafted: int
    accepted: int
    num_faults: int = 0


def error_rate(num_checks: int) -> float:
    """Return the p-value below which one of `num_checks` tests fails."""
    return _ERROR_RATE / num_checks


def joint_distribution(
    target: Decoder, prompt: Sequence[int], constraint: Constraint | None = None
) -> JointDistribution:
    """Return the exact distribution of the first tokens; the content of the target's cache changes.

    The prompt has at least one token; a constraint of None allows any token.
    """
    target.reset()
    target.observe(prompt[:-1])
    probs: dict[Tokens, float] = {}
    waiting: list[tuple[Tokens, float, int]] = [((), 1.0, 1)]  # with the number of the next choice
    while waiting:
        begun, prob, number = waiting.pop()
        begun = _with_forced(constraint, begun)
        after = constraint.allowed(begun) if constraint else None
        if after is not None and (after.is_complete or len(begun) >= MOST_FORCED):
            probs[begun] = prob
            continue
        _read(target, [*prompt, *begun])
        shares = _next_probs(np.array(target.next_logits().astype(mx.float32)), after)
        for rank, (token, share) in enumerate(shares.items()):
            reply = (*begun, token)
            if rank < _NUM_FOLLOWED and number < LENGTH:
                waiting.append((reply, prob * share, number + 1))
            else:
                probs[reply] = prob * share
        probs[(*begun, OTHER)] = prob * max(1 - sum(shares.values()), 0.0)
    return JointDistribution(probs)


def _with_forced(constraint: Constraint | None, begun: Tokens) -> Tokens:
    """Return a prefix with the forced tokens that follow it."""
    while constraint is not None and len(begun) < MOST_FORCED:
        after = constraint.allowed(begun)
        if after is None or after.forced is None:
            break
        begun = (*begun, after.forced)
    return begun


def _read(target: Decoder, tokens: Sequence[int]) -> None:
    """Make the cache hold these tokens; missing ones are read one by one."""
    kept = common_length(target.history, tokens)
    target.rollback_to(kept)
    for token in tokens[kept:]:
        target.observe([token])


def cases_of(
    target: Decoder,
    prompts: Iterable[Sequence[int]],
    num_nodes: Sequence[int],
    num_draws: int,
    constrained: Callable[[Sequence[int]], Constraint | None] = lambda prompt: None,
) -> list[Case]:
    """Return a case for each number of draft nodes, with the prompts that test the most cells.

    Each case has `num_draws` samples. `constrained` returns the constraint after a prompt; None for
    any token. Raises `ValueError` if, after every prompt, all samples would count in one cell.
    """

    def num_pools(distribution: JointDistribution) -> int:
        return len(pooled(distribution.probs, num_draws))

    found = [
        (tuple(prompt), joint_distribution(target, prompt, constrained(prompt)))
        for prompt in prompts
    ]
    ranked = sorted(
        (case for case in found if num_pools(case[1]) > 1), key=lambda c: -num_pools(c[1])
    )
    if not ranked:
        raise ValueError(
            f"{num_draws} samples per case are too few to test a distribution of these prompts: "
            "give more --draws, a larger --limit, or other --prompts"
        )
    cases = []
    for number, count in enumerate(num_nodes):
        seeds = range(number * num_draws, (number + 1) * num_draws)
        cases.append(Case(*ranked[number % len(ranked)], count, seeds))
    return cases


def sample_params(grammar: Grammar | None) -> GenerationParams:
    """Return the settings of all samples."""
    return GenerationParams(sampling=SAMPLING, ignore_eos=True, grammar=grammar)


def draw(
    engine: Engine,
    drafter: Drafter | None,
    case: Case,
    seed: int,
    *,
    budget: Budget | None = None,
    grammar: Grammar | None = None,
) -> Trial:
    """Return a reply whose first tokens are a sample, as long as the longest cell.

    `drafter` and `budget` are as in `run_trial`.
    """
    length = case.distribution.length
    params = replace(
        sample_params(grammar),
        # more than are counted: a draft is never deeper than the rest of the reply
        max_tokens=length + case.num_nodes,
        seed=seed,
        num_draft_tokens=case.num_nodes,
    )
    return run_trial(
        engine, case.prompt, params, drafter, budget=budget, should_stop=lambda n: n >= length
    )


def check_distribution(
    name: str, cases: Sequence[Case], draws: Callable[[Case], Iterable[Trial]]
) -> DistributionCheck:
    """Compare samples with the exact distribution.

    `name` is that of their drafter; `draws` yields the samples of a case.
    """
    total = Fit(0, 0.0, 0)
    drafted = accepted = num_faults = 0
    for case in cases:
        cells = []
        for trial in draws(case):
            cells.append(case.distribution.cell_of(trial.tokens[: case.distribution.length]))
            drafted += trial.stats["drafted"]
            accepted += trial.stats["accepted"]
            num_faults += bool(trial.fault)
        total += fit(cells, case.distribution.probs)
    return DistributionCheck(name, total, drafted, accepted, num_faults)


def _next_probs(logits: np.ndarray, after: Allowed | None = None) -> dict[int, float]:
    """Return the probabilities of the tokens with a cell of their own, the largest first."""
    wide = logits.astype(np.float64) / SAMPLING.temperature
    if after is not None:
        is_allowed = np.zeros(len(wide), np.bool_)
        width = min(len(wide), len(after.bits))
        is_allowed[:width] = after.bits[:width]
        wide[~is_allowed] = -np.inf
    weights = np.exp(wide - wide.max())
    best = np.argsort(-wide, kind="stable")[:_NUM_OWN_CELLS]
    best = best[weights[best] > 0]
    return dict(zip(best.tolist(), (weights[best] / weights.sum()).tolist(), strict=True))
