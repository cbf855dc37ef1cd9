"""Short trials of a drafter: timed replies to built-in prompts.

Greedy replies are the same with every drafter, so trials of the same prompt differ only in speed
and acceptance. Sampled ones differ in their text, too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from mlxspec.budget import Budget
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, GREEDY, GenerationParams, SamplingParams
from mlxspec.trace.stats import GenerationStats

_SEED = 1

PROMPTS = (
    "Explain in a few sentences why the sea has tides.",
    "Write a Python function that counts how often each word occurs in a text.",
    "Make a packing list for a weekend of hiking in the mountains.",
    "Correct the mistakes and give me the whole text back: Yesterday we goes to the market, and "
    "we buyed apples, pears and a loaf of bread, because my sister were coming for dinner.",
    "Give me a table of the planets, with their distance from the sun and their moons.",
    "Write a short letter to a neighbour whose dog barks at night.",
    "Show as JSON what a shop stores about a customer, with two examples.",
    "What speaks for a bicycle in the city, and what against it? Answer as a list.",
)
"""Prompts of different kinds; a prompt that is too long for the context is cut at its end."""


@dataclass(frozen=True)
class Trial:
    """The figures of a short reply; `seconds` do not include the prefill.

    `rounds` are those with a draft, `hits` those that accepted at least one draft token.
    """

    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    hits: int = 0

    @property
    def tokens_per_s(self) -> float:
        """Emitted tokens/s, 0 for an empty trial."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def first_acceptance_rate(self) -> float:
        """Share of the drafts with an accepted token at depth 1; 0 without a draft."""
        return self.hits / self.rounds if self.rounds else 0.0

    def __add__(self, other: "Trial") -> "Trial":
        return Trial(
            self.tokens + other.tokens,
            self.seconds + other.seconds,
            self.rounds + other.rounds,
            self.hits + other.hits,
        )


def run_trial(
    engine: Engine,
    drafter: Drafter,
    prompt: str,
    *,
    max_tokens: int,
    max_seconds: float = float("inf"),
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS,
    budget: Budget | None = None,
    sampling: SamplingParams = GREEDY,
    clock: Callable[[], float] = time.perf_counter,
) -> Trial:
    """Return the figures of one reply; the content of the target's cache changes.

    `max_seconds` includes the prefill: no round starts after it, but there is always one round. If
    `budget` is None, the engine's own budget decides the number of nodes.
    """
    params = GenerationParams(
        max_tokens, sampling, num_draft_tokens=num_draft_tokens, seed=_SEED, ignore_eos=True
    )
    stats, begun = GenerationStats(), clock()

    def is_over() -> bool:
        return stats.generated_tokens > 0 and clock() - begun > max_seconds

    tokens = _tokens(engine, prompt, max_tokens)
    for event in engine.generate(
        tokens, params, drafter=drafter, budget=budget, should_stop=is_over
    ):
        stats.add(event)
    hits = stats.accepted_at_depth[0] if stats.accepted_at_depth else 0
    seconds = stats.total_s - stats.prefill_s
    return Trial(stats.generated_tokens, seconds, stats.rounds, hits)


def _tokens(engine: Engine, prompt: str, max_tokens: int) -> list[int]:
    tokenizer = engine.tokenizer
    if tokenizer.has_chat_template:
        tokens = tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    else:
        tokens = tokenizer.encode(prompt)
    room = len(tokens) if engine.context_length is None else engine.context_length - max_tokens
    return tokens[: max(room, 1)]
