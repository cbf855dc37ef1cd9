"""Measure a drafter by real decoding: tokens per target forward and acceptance by depth.

All forwards count, also those without a draft, so a drafter gains nothing by proposing seldom.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np

from mlxspec.drafters.base import Drafter
from mlxspec.drafts.round import Round
from mlxspec.engine.engine import Engine
from mlxspec.measure.tables import cell, table
from mlxspec.measure.trial import run_trial
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.train.data.corpus import GREEDY, Conversation

_DEPTHS_SHOWN = 5


@dataclass(frozen=True)
class Acceptance:
    """How many of a drafter's draft tokens one target accepted."""

    DERIVED: ClassVar = ("tokens_per_forward", "acceptance_by_depth")

    drafter: str
    temperature: float
    num_draft_tokens: int  # maximum number of draft nodes per round
    num_answers: int
    num_tokens: int
    forwards: int  # target forwards, without the prefill
    drafted: int
    accepted_at_depth: tuple[int, ...]  # number of forwards that accepted a node at depth 1, 2,
    draft_s: float = 0.0  # seconds spent drafting

    @property
    def tokens_per_forward(self) -> float:
        """1 + accepted / forwards: the bonus token included."""
        return 1.0 + (sum(self.accepted_at_depth) / self.forwards if self.forwards else 0.0)

    @property
    def acceptance_by_depth(self) -> list[float]:
        return [count / self.forwards for count in self.accepted_at_depth]


def heldout_prompts(
    conversations: Iterable[Conversation], max_answers: int = 16
) -> list[list[int]]:
    """Return the tokens before greedy answers of held-out conversations, evenly spaced."""
    prompts = [
        conversation.tokens[:start].tolist()
        for conversation in conversations
        if conversation.is_heldout
        for start, _ in conversation.spans(GREEDY)
        if start
    ]
    chosen = np.linspace(0, len(prompts) - 1, min(max_answers, len(prompts))).astype(int)
    return [prompts[index] for index in chosen]


def evaluate(
    engine: Engine,
    make_drafter: Callable[[], Drafter],
    prompts: Sequence[Sequence[int]],
    *,
    num_draft_tokens: Sequence[int],
    temperatures: Sequence[float],
    max_tokens: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Acceptance]:
    """Return the acceptance of a drafter for every combination of temperature and nodes.

    `make_drafter` returns the drafter of the next answer, which stops after the round that reaches
    `max_tokens`. `on_progress` gets the number of finished and of all answers.
    """
    combinations = list(product(temperatures, num_draft_tokens))
    found: list[Acceptance] = []
    for temperature, number in combinations:
        params = GenerationParams(
            max_tokens=max_tokens + number + 1,  # room for a whole draft in every round
            sampling=SamplingParams(temperature=temperature),
            num_draft_tokens=number,
        )
        stats: list[Mapping[str, Any]] = []
        for prompt in prompts:
            drafter = make_drafter()
            trial = run_trial(
                engine, prompt, params, drafter, should_stop=lambda count: count >= max_tokens
            )
            stats.append(trial.stats)
            on_progress(len(found) * len(prompts) + len(stats), len(combinations) * len(prompts))
        names = ("generated_tokens", "target_forwards", "drafted", "draft_s")
        num_tokens, forwards, drafted, draft_s = (sum(one[name] for one in stats) for name in names)
        depths = zip_longest(*(one["accepted_at_depth"] for one in stats), fillvalue=0)
        accepted = tuple(map(sum, depths))
        case = (drafter.name, temperature, number, len(prompts))
        found.append(Acceptance(*case, num_tokens, forwards, drafted, accepted, draft_s))
    return found


def count_along(
    drafter: Drafter, prompt: Sequence[int], reply: Sequence[int], num_draft_tokens: int
) -> tuple[int, int]:
    """Return the tokens of a stored reply, and the forwards that a greedy target would need.

    Nothing is computed with the target, so a drafter learns only from the tokens of the reply.
    """
    drafter.start(prompt, SamplingParams(temperature=0.0), mx.random.key(0))
    root, done, forwards = prompt[-1], 0, 0
    while done < len(reply):
        tokens, parents = drafter.propose(root, num_draft_tokens).tree.lists()
        children = {edge: node for node, edge in enumerate(zip(parents, tokens, strict=True))}
        node, path = 0, [root]
        for token in reply[done:-1]:  # the last token is the target's in any case
            if (node := children.get((node, token), -1)) < 0:
                break
            path.append(token)
        emitted = [*path[1:], reply[done + len(path) - 1]]
        drafter.update(
            Round(
                tokens=path,
                parents=range(-1, len(path) - 1),
                path=range(len(path)),
                bonus_token=emitted[-1],
                top_tokens=[[token] for token in emitted],
                top_probs=[[1.0]] * len(emitted),
            )
        )
        root, done, forwards = emitted[-1], done + len(emitted), forwards + 1
    return done, forwards


def as_table(results: Sequence[Acceptance]) -> str:
    """Return the results as a table in plain text."""
    depths = [f"d{depth}" for depth in range(1, _DEPTHS_SHOWN + 1)]
    rows = [["drafter", "T", "nodes", "tokens/forward", *depths, "forwards", "draft ms"]]
    for one in results:
        rates = [cell(rate) for rate in one.acceptance_by_depth[:_DEPTHS_SHOWN]]
        rates += ["-"] * (_DEPTHS_SHOWN - len(rates))
        case = (one.drafter, f"{one.temperature:g}", str(one.num_draft_tokens))
        draft_ms = cell(1e3 * one.draft_s / max(one.forwards, 1))
        rows.append([*case, cell(one.tokens_per_forward, 3), *rates, str(one.forwards), draft_ms])
    return table(rows)
