"""Checks whether the first tokens of sampled replies have the target's joint distribution.

Samples are counted in cells: after every prefix each of the most probable tokens has a cell of its
own, the others share one, and the three most probable are prefixes themselves, up to the third
token. The probabilities of cells are exact: the target reads every prefix row by row, without
drafts, and NumPy computes in float64. No filter cuts tokens off, because at its edge rounding could
move whole probabilities. A token that a grammar forces is not a sample: a cell then has three
tokens that were chosen, and the forced ones between them.
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
OTHER = -1  # marks the cell of all tokens without a cell of their own
MOST_FORCED = 48  # tokens in a cell; a longer text ends there
_NUM_OWN_CELLS, _NUM_FOLLOWED = 16, 3
ERROR_RATE = 1e-4  # of a run in which nothing is wrong; its tests share it (Bonferroni)

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class JointDistribution:
    """The joint distribution of the first tokens after a prompt."""

    probs: Mapping[Tokens, float]  # by cell: the first tokens, of which the last may be `OTHER`

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
    """The samples with one drafter, compared with the exact distribution."""

    drafter: str
    fit: Fit
    drafted: int  # draft nodes
    accepted: int
    num_faults: int = 0  # samples in which the drafter failed


def joint_distribution(
    target: Decoder, prompt: Sequence[int], constraint: Constraint | None = None
) -> JointDistribution:
    """Return the exact distribution of the first tokens; the target's cache holds them then."""
    target.reset()
    target.observe(prompt[:-1])
    probs: dict[Tokens, float] = {}
    waiting: list[tuple[Tokens, float, int]] = [((), 1.0, 1)]  # with the number of the next choice
    while waiting:
        begun, prob, number = waiting.pop()
        if constraint is not None:
            begun += constraint.forced_run(MOST_FORCED - len(begun), begun)
        after = constraint.allowed(begun) if constraint else None
        if after is not None and (after.is_complete or len(begun) >= MOST_FORCED):
            probs[begun] = prob
            continue
        text = [*prompt, *begun]
        target.rollback_to(common_length(target.history, text))
        for token in text[len(target) :]:  # row by row, as in plain decoding
            target.observe([token])
        shares = _next_probs(np.array(target.next_logits().astype(mx.float32)), after)
        for rank, (token, share) in enumerate(shares.items()):
            reply = (*begun, token)
            if rank < _NUM_FOLLOWED and number < LENGTH:
                waiting.append((reply, prob * share, number + 1))
            else:
                probs[reply] = prob * share
        probs[(*begun, OTHER)] = prob * max(1 - sum(shares.values()), 0.0)
    return JointDistribution(probs)


def cases_of(
    target: Decoder,
    prompts: Iterable[Sequence[int]],
    num_nodes: Sequence[int],
    num_draws: int,
    constrained: Callable[[Sequence[int]], Constraint | None] = lambda prompt: None,
) -> list[Case]:
    """Return a case of `num_draws` samples for each number of draft nodes.

    They have the prompts that test the most cells. `constrained` returns the constraint after one.
    """
    found = []
    for prompt in prompts:
        joint = joint_distribution(target, prompt, constrained(prompt))
        found.append((len(pooled(joint.probs, num_draws)), tuple(prompt), joint))
    ranked = sorted((case for case in found if case[0] > 1), key=lambda case: -case[0])
    if not ranked:
        raise ValueError(
            f"{num_draws} samples per case are too few to test a distribution of these prompts: "
            "give more --draws, a larger --limit, or other --prompts"
        )
    cases = []
    for number, count in enumerate(num_nodes):
        seeds = range(number * num_draws, (number + 1) * num_draws)
        _, prompt, joint = ranked[number % len(ranked)]
        cases.append(Case(prompt, joint, count, seeds))
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
    """Return a reply whose first tokens are a sample, as long as the longest cell."""
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
    """Compare samples with the exact distribution; `draws` yields those of a case."""
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
