"""Measure a drafter by real decoding: tokens per target forward and acceptance by depth.

All forwards count, also those without a draft, so a drafter gains nothing by proposing seldom.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import ClassVar, Literal

import mlx.core as mx
import numpy as np

from mlxspec.device import backend
from mlxspec.drafters.base import Drafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.engine.engine import Engine
from mlxspec.measure.tables import cell, table
from mlxspec.measure.trial import Trial, run_trial
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.train.data.corpus import GREEDY, Conversation

Shape = Literal["tree", "chain"]
_DEPTHS_SHOWN = 5


@dataclass(frozen=True)
class Acceptance:
    """How many of a drafter's draft tokens one target accepted."""

    DERIVED: ClassVar = ("tokens_per_forward", "acceptance_by_depth")

    drafter: str
    shape: Shape  # "tree" for whole drafts, "chain" for their most probable path alone
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


@dataclass(frozen=True)
class Settings:
    """Values to measure: every combination of nodes, temperature and shape, on the same prompts."""

    num_draft_tokens: Sequence[int] = (8, 16)
    temperatures: Sequence[float] = (0.0, 1.0)
    shapes: Sequence[Shape] = ("tree", "chain")
    max_tokens: int = 64  # an answer stops after the round that reaches it
    seed: int = 0


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
    settings: Settings,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Acceptance]:
    """Return the acceptance of a drafter for every combination of settings.

    `make_drafter` returns the drafter of the next answer; `on_progress` gets finished and all
    answers.
    """
    combinations = list(product(settings.shapes, settings.temperatures, settings.num_draft_tokens))
    found: list[Acceptance] = []
    for shape, temperature, number in combinations:
        params = GenerationParams(
            max_tokens=settings.max_tokens + number + 1,  # room for a whole draft in every round
            sampling=SamplingParams(temperature=temperature),
            seed=settings.seed,
            num_draft_tokens=number,
        )
        trials: list[Trial] = []
        for prompt in prompts:
            drafter = make_drafter() if shape == "tree" else LikeliestPath(make_drafter())
            trials.append(
                run_trial(
                    *(engine, prompt, params, drafter),
                    should_stop=lambda num_tokens: num_tokens >= settings.max_tokens,
                )
            )
            done = len(found) * len(prompts) + len(trials)
            on_progress(done, len(combinations) * len(prompts))
        stats = [trial.stats for trial in trials]
        names = ("generated_tokens", "target_forwards", "drafted", "draft_s")
        num_tokens, forwards, drafted, draft_s = (sum(one[name] for one in stats) for name in names)
        depths = zip_longest(*(one["accepted_at_depth"] for one in stats), fillvalue=0)
        accepted = tuple(map(sum, depths))
        case = (drafter.name, shape, temperature, number, len(prompts))
        found.append(Acceptance(*case, num_tokens, forwards, drafted, accepted, draft_s))
    return found


def as_table(results: Sequence[Acceptance]) -> str:
    """Return the results as a table in plain text."""
    depths = [f"d{depth}" for depth in range(1, _DEPTHS_SHOWN + 1)]
    rows = [["drafter", "shape", "T", "nodes", "tokens/forward", *depths, "forwards", "draft ms"]]
    for one in results:
        rates = [cell(rate) for rate in one.acceptance_by_depth[:_DEPTHS_SHOWN]]
        rates += ["-"] * (_DEPTHS_SHOWN - len(rates))
        case = (one.drafter, one.shape, f"{one.temperature:g}", str(one.num_draft_tokens))
        draft_ms = cell(1e3 * one.draft_s / max(one.forwards, 1))
        rows.append([*case, cell(one.tokens_per_forward, 3), *rates, str(one.forwards), draft_ms])
    return table(rows)


class LikeliestPath(Drafter):
    """A drafter whose trees are cut to one path: at each node, the most probable child."""

    def __init__(self, drafter: Drafter) -> None:
        self.name = drafter.name
        self.num_top_tokens = drafter.num_top_tokens
        self.drafters = (drafter,)

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        self.drafters[0].start(prompt, sampling, key)

    def propose(self, root: int, budget: int) -> Draft:
        """Return the most probable path of the drafter's tree; a sampled draft is not changed."""
        draft = self.drafters[0].propose(root, budget)
        if draft.sampled_from is not None:
            return draft  # a choice among sampled tokens would change q
        stated = [] if draft.node_probs is None else [draft.node_probs]
        backend.sync(draft.tree.tokens, draft.tree.parents, *stated)
        tokens, parents = backend.values(draft.tree.tokens), backend.values(draft.tree.parents)
        probs = [1.0, *backend.values(stated[0])] if stated else [1.0] * len(tokens)
        path = [0]
        while children := [n for n in range(1, len(tokens)) if parents[n] == path[-1]]:
            path.append(max(children, key=probs.__getitem__))
        sources = [draft.sources[node - 1] for node in path[1:]]
        return Draft.from_lists([tokens[node] for node in path], range(-1, len(path) - 1), sources)

    def update(self, round: Round) -> None:
        self.drafters[0].update(round)
