"""The acceptance probe: does a head that somebody trained fit this target, wired as it is?

A head read with a wrong convention, or made for another model of the same sizes, runs without an
error and drafts nonsense. Replies stay what they are and come more slowly, so nobody would know;
the share of its first draft tokens that the target keeps tells at once. (Layers of EAGLE-3 are
counted in two ways by the tools that write it: then both are tried.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlxspec.budget import FixedBudget
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.measure.trial import PROMPTS, Trial, run_trial

MIN_HIT_RATE = 0.05
"""Of first draft tokens; a head trained for minutes reaches 0.25, a wrongly wired one 0.01."""

_TOKENS_PER_PROMPT = 64
_MAX_SECONDS = 3.0
_NUM_PROMPTS = 2


@dataclass(frozen=True)
class Probe:
    """What the probe of a head showed.

    Attributes:
        hit_rate: Share of first draft tokens that the target kept.
        rounds: Drafts it was counted over.
    """

    hit_rate: float
    rounds: int

    @property
    def is_wired(self) -> bool:
        """Whether the head drafts better than nonsense, as far as so few drafts can tell."""
        return self.hit_rate >= MIN_HIT_RATE

    def describe(self) -> str:
        """Return the figure in words."""
        return f"{self.hit_rate:.0%} of {self.rounds} first draft tokens accepted"


Run = Callable[[Drafter, str, float], Trial]
"""Runs a trial of a drafter on a prompt in so many seconds."""


def probe(drafter: Drafter, run: Run, *, max_seconds: float = _MAX_SECONDS) -> Probe:
    """Return how often the first draft token of a head is kept.

    Args:
        drafter: The head's drafter.
        run: Usually `trials_of(engine)`.
        max_seconds: Time for all of it; each prompt has one round at least.
    """
    trial = Trial()
    for prompt in PROMPTS[:_NUM_PROMPTS]:
        trial += run(drafter, prompt, max_seconds / _NUM_PROMPTS)
    return Probe(trial.hit_rate, trial.rounds)


def best_wired(drafters: Sequence[Drafter], run: Run) -> tuple[int, Probe]:
    """Return which drafter's first tokens are kept most often, with its probe.

    Args:
        drafters: The same head, wired in every way that it may be meant; at least one.
        run: As in `probe`.
    """
    seconds = _MAX_SECONDS / len(drafters)
    probes = [probe(drafter, run, max_seconds=seconds) for drafter in drafters]
    best = max(range(len(drafters)), key=lambda number: probes[number].hit_rate)
    return best, probes[best]


def trials_of(engine: Engine) -> Run:
    """Return what runs trials with one draft token a round: what it says is top-1 acceptance."""

    def run(drafter: Drafter, prompt: str, max_seconds: float) -> Trial:
        return run_trial(
            engine,
            drafter,
            prompt,
            max_tokens=_TOKENS_PER_PROMPT,
            max_seconds=max_seconds,
            num_draft_tokens=1,
            budget=FixedBudget(),
        )

    return run
