"""Sampled replies: do their first tokens follow the target's joint law?

The target's whole vocabulary is drawn from; what is counted is a small part of it. After every
beginning the most probable tokens are told apart, the others are one cell; what follows is looked
at after the three most probable ones, up to the third token. The law of these cells is summed
exactly: the target reads every beginning row by row, without drafts, and NumPy turns the logits
into probabilities in float64. Draws come from the engine with one seed after the other, as any
reply does, each stopped after its third token. Whatever drafts, they must follow that law.
Nothing is cut off from it, so a rounding moves a probability by no more than itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx
import numpy as np

from mlxspec.budget import Budget
from mlxspec.checking.chi_square import Fit, fit, pooled
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.target.decoder import Decoder
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import DrafterFailed, DraftVerified, GenerationFinished, PlainDecoded

LENGTH = 3
LAW = SamplingParams(temperature=1.0)
OTHER = -1
"""Stands in a cell for all tokens that are not told apart."""

_NUM_TOLD_APART, _NUM_FOLLOWED = 16, 3

_ERROR_RATE = 1e-4
"""How often a run may call a true law false: shared by all of its tests (Bonferroni)."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class JointLaw:
    """The law of the first tokens after a prompt.

    Attributes:
        probs: Probability of each cell: tokens that a draw begins with, `LENGTH` at most, the
            last of which may be `OTHER`.
    """

    probs: Mapping[Tokens, float]

    def cell_of(self, drawn: Tokens) -> Tokens:
        """Return the cell of a draw of `LENGTH` tokens."""
        for length in range(1, LENGTH + 1):
            if drawn[:length] in self.probs:
                return drawn[:length]
            if drawn[:length] not in self._followed:
                return (*drawn[: length - 1], OTHER)
        raise AssertionError("a draw is longer than every cell")

    @cached_property
    def _followed(self) -> frozenset[Tokens]:
        return frozenset(cell[:length] for cell in self.probs for length in range(1, len(cell)))


@dataclass(frozen=True)
class Case:
    """What is drawn from.

    Attributes:
        prompt: Tokens before.
        law: The exact law of what follows.
        num_nodes: Draft nodes of a round.
        seeds: One per draw.
    """

    prompt: Tokens
    law: JointLaw
    num_nodes: int
    seeds: range


@dataclass(frozen=True)
class LawCheck:
    """Draws with one drafter.

    Attributes:
        drafter: Its name.
        fit: How they fit the law.
        drafted: Draft nodes that were verified.
        accepted: Of these, how many were kept.
        num_faults: Draws in which the drafter broke down.
    """

    drafter: str
    fit: Fit
    drafted: int
    accepted: int
    num_faults: int = 0

    def is_off(self, num_checks: int) -> bool:
        """Whether the law is another one, as surely as `num_checks` such tests allow."""
        return self.fit.p_value < error_rate(num_checks)


def error_rate(num_checks: int) -> float:
    """Return the p-value below which one of so many tests fails."""
    return _ERROR_RATE / num_checks


def joint_law(target: Decoder, prompt: Sequence[int]) -> JointLaw:
    """Return the exact law of the first tokens; the target's history is another afterwards.

    Args:
        target: The model; it reads every beginning without drafts.
        prompt: Tokens before, at least one.
    """
    target.reset()
    target.observe(prompt[:-1])
    probs: dict[Tokens, float] = {}
    waiting: list[tuple[Tokens, float]] = [((), 1.0)]
    while waiting:
        begun, prob = waiting.pop()
        _read(target, [*prompt, *begun])
        shares = _next_law(np.array(target.next_logits().astype(mx.float32)))
        for rank, (token, share) in enumerate(shares.items()):
            reply = (*begun, token)
            if rank < _NUM_FOLLOWED and len(reply) < LENGTH:
                waiting.append((reply, prob * share))
            else:
                probs[reply] = prob * share
        probs[(*begun, OTHER)] = prob * max(1 - sum(shares.values()), 0.0)
    return JointLaw(probs)


def _read(target: Decoder, tokens: Sequence[int]) -> None:
    """Make these the history; what is not there yet is read token by token."""
    kept = common_length(target.history, tokens)
    target.rollback_to(kept)
    for token in tokens[kept:]:
        target.observe([token])


def cases_of(
    target: Decoder,
    prompts: Iterable[Sequence[int]],
    num_nodes: Sequence[int],
    num_draws: int,
) -> list[Case]:
    """Return a case for each number of draft nodes, with the prompts whose laws say most.

    Args:
        target: Says what the laws are.
        prompts: To choose from.
        num_nodes: Draft nodes of a round.
        num_draws: Draws from each.

    Raises:
        ValueError: Draws after any of these prompts are too much alike, or too few.
    """

    def num_pools(law: JointLaw) -> int:
        return len(pooled(law.probs, num_draws))

    told = [(tuple(prompt), joint_law(target, prompt)) for prompt in prompts]
    laws = sorted((case for case in told if num_pools(case[1]) > 1), key=lambda c: -num_pools(c[1]))
    if not laws:
        raise ValueError(
            f"{num_draws} draws cannot tell one beginning of a reply from another: take more "
            "--draws, a larger --limit, or other --prompts"
        )
    cases = []
    for number, count in enumerate(num_nodes):
        seeds = range(number * num_draws, (number + 1) * num_draws)
        cases.append(Case(*laws[number % len(laws)], count, seeds))
    return cases


class Sampler:
    """Draws beginnings of replies and counts what was drafted on the way."""

    def __init__(self, engine: Engine, drafter: Drafter, budget: Budget | None = None) -> None:
        """Draw with a drafter; the budget decides how much of it is verified."""
        self._engine, self._drafter, self._budget = engine, drafter, budget
        self.drafted = self.accepted = self.num_faults = 0

    def draw(self, case: Case, seed: int) -> Tokens:
        """Return `LENGTH` tokens."""
        params = GenerationParams(
            # More than are drawn: a draft is never larger than what is left of the reply.
            max_tokens=LENGTH + case.num_nodes,
            sampling=LAW,
            seed=seed,
            num_draft_tokens=case.num_nodes,
            ignore_eos=True,
        )
        tokens: list[int] = []
        events = self._engine.generate(
            case.prompt,
            params,
            drafter=self._drafter,
            budget=self._budget,
            should_stop=lambda: len(tokens) >= LENGTH,
        )
        for event in events:
            match event:
                case DraftVerified() | PlainDecoded():
                    tokens += [token.token for token in event.emit]
                case DrafterFailed():
                    self.num_faults += 1
                case GenerationFinished():
                    self.drafted += event.stats["drafted"]
                    self.accepted += event.stats["accepted"]
        return tuple(tokens[:LENGTH])


def check_law(
    sampler: Sampler,
    drafter: str,
    cases: Sequence[Case],
    watched: Callable[[Case], Iterable[int]],
) -> LawCheck:
    """Draw with a drafter, and compare with the law.

    Args:
        sampler: Draws with it, and has drawn nothing yet.
        drafter: What it is called.
        cases: What to draw from.
        watched: Returns the seeds of a case, one after the other.
    """
    total: Fit | None = None
    for case in cases:
        drawn = (sampler.draw(case, seed) for seed in watched(case))
        found = fit(map(case.law.cell_of, drawn), case.law.probs)
        total = found if total is None else total + found
    assert total is not None
    return LawCheck(drafter, total, sampler.drafted, sampler.accepted, sampler.num_faults)


def _next_law(logits: np.ndarray) -> dict[int, float]:
    """Return the probabilities of the tokens that are told apart, the largest first."""
    wide = logits.astype(np.float64) / LAW.temperature
    weights = np.exp(wide - wide.max())
    best = np.argsort(-wide, kind="stable")[:_NUM_TOLD_APART]
    return dict(zip(best.tolist(), (weights[best] / weights.sum()).tolist(), strict=True))
