"""The acceptance probe: checks whether a downloaded head fits this target.

A head that is loaded with a wrong layer convention, or was trained for another model of the same
sizes, runs without an error and drafts nonsense. Replies stay correct and are only slower, so a
user would not see it. The acceptance rate of its first draft tokens shows it at once.
"""

from dataclasses import dataclass

from mlxspec.budget import FixedBudget
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.measure.trial import PROMPTS, short_trial

MIN_ACCEPTANCE_RATE = 0.05
"""Acceptance rate of first draft tokens; a head after minutes of training reaches 0.25, one loaded
with the wrong layers 0.01.
"""

MAX_SECONDS = 3.0
_TOKENS_PER_PROMPT = 64
_NUM_PROMPTS = 2


@dataclass(frozen=True)
class Probe:
    """The share of first draft tokens that the target accepted, over a number of rounds."""

    acceptance_rate: float
    rounds: int

    @property
    def is_wired(self) -> bool:
        """Whether the head drafts better than at random, within the accuracy of so few drafts."""
        return self.acceptance_rate >= MIN_ACCEPTANCE_RATE


def probe(engine: Engine, drafter: Drafter, max_seconds: float = MAX_SECONDS) -> Probe:
    """Return how often the target accepts the first draft token of a head.

    `max_seconds` is for all prompts; each prompt has at least one round. The content of the
    target's cache changes.
    """
    rounds = hits = 0
    for prompt in PROMPTS[:_NUM_PROMPTS]:
        trial = short_trial(
            engine,
            prompt,
            drafter,
            max_tokens=_TOKENS_PER_PROMPT,
            seconds=max_seconds / _NUM_PROMPTS,
            budget=FixedBudget(),
            num_draft_tokens=1,  # for top-1 acceptance
        )
        rounds += trial.stats["rounds"]
        hits += trial.stats["accepted"]
    return Probe(hits / rounds if rounds else 0.0, rounds)
