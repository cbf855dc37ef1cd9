"""Measure a drafter by real decoding: tokens per target forward and acceptance by depth.

The engine answers prompts of held-out conversations, once for each drafter, number of nodes, shape
and temperature. All forwards count, also those without a draft, so that a drafter gains nothing by
proposing seldom. The end of an answer cuts no draft short.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Literal

import mlx.core as mx
import numpy as np

from mlxspec.device import backend
from mlxspec.drafters.base import Drafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.engine.engine import Engine
from mlxspec.measure.tables import cell, table
from mlxspec.measure.trial import run_trial
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.train.data.corpus import GREEDY, Conversation

Shape = Literal["tree", "chain"]
MakeDrafter = Callable[[], Drafter]
"""Returns the drafter of the next answer; the same object again keeps its state."""

DEFAULT_NUM_ANSWERS = 16
DEFAULT_MAX_TOKENS = 64
_DEPTHS_SHOWN = 5


@dataclass(frozen=True)
class Acceptance:
    """How many of a drafter's draft tokens one target accepted.

    Attributes:
        shape: "tree" for whole drafts, "chain" for their most probable path alone.
        num_draft_tokens: Maximum number of draft nodes per round.
        forwards: Target forwards, without the prefill.
        accepted_at_depth: Number of forwards that accepted a node at depth 1, 2, ...
        draft_s: Seconds spent drafting.
    """

    DERIVED: ClassVar = ("tokens_per_forward", "acceptance_by_depth")

    drafter: str
    shape: Shape
    temperature: float
    num_draft_tokens: int
    num_answers: int
    num_tokens: int
    forwards: int
    drafted: int
    accepted_at_depth: tuple[int, ...]
    draft_s: float = 0.0

    @property
    def tokens_per_forward(self) -> float:
        """1 + accepted / forwards: the bonus token included."""
        return 1.0 + (sum(self.accepted_at_depth) / self.forwards if self.forwards else 0.0)

    @property
    def acceptance_by_depth(self) -> list[float]:
        """Share of all forwards that accepted a node at depth 1, 2, ..."""
        return [count / self.forwards for count in self.accepted_at_depth]


@dataclass(frozen=True)
class Settings:
    """Values to measure: every combination of nodes, temperature and shape, on the same prompts.

    An answer stops after the round that reaches `max_tokens`.
    """

    num_draft_tokens: Sequence[int] = (8, 16)
    temperatures: Sequence[float] = (0.0, 1.0)
    shapes: Sequence[Shape] = ("tree", "chain")
    max_tokens: int = DEFAULT_MAX_TOKENS
    seed: int = 0


def heldout_prompts(
    conversations: Iterable[Conversation], max_answers: int = DEFAULT_NUM_ANSWERS
) -> list[list[int]]:
    """Return the tokens before each greedy answer of held-out conversations.

    Of more than `max_answers`, an evenly spaced selection is returned.
    """
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
    make_drafter: MakeDrafter,
    prompts: Sequence[Sequence[int]],
    settings: Settings | None = None,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Acceptance]:
    """Return the acceptance of a drafter for every combination of settings.

    `on_progress` is called with the number of finished answers and of all answers.
    """
    settings = settings or Settings()
    combinations = [
        (shape, temperature, number)
        for shape in settings.shapes
        for temperature in settings.temperatures
        for number in settings.num_draft_tokens
    ]
    found: list[Acceptance] = []
    total = len(combinations) * len(prompts)
    for shape, temperature, number in combinations:
        replies, name = [], ""
        for prompt in prompts:
            drafter = make_drafter()
            name, drafter = drafter.name, drafter if shape == "tree" else LikeliestPath(drafter)
            replies.append(_answer(engine, drafter, prompt, temperature, number, settings))
            on_progress(len(found) * len(prompts) + len(replies), total)
        found.append(_total(name, shape, temperature, number, replies))
    return found


def as_table(results: Sequence[Acceptance]) -> str:
    """Return the results as a table in plain text."""
    depths = [f"d{depth}" for depth in range(1, _DEPTHS_SHOWN + 1)]
    head = ["drafter", "shape", "T", "nodes", "tokens/forward", *depths, "forwards", "draft ms"]
    return table([head, *map(_cells, results)])


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


def _answer(
    engine: Engine,
    drafter: Drafter,
    prompt: Sequence[int],
    temperature: float,
    number: int,
    settings: Settings,
) -> Mapping[str, Any]:
    params = GenerationParams(
        max_tokens=settings.max_tokens + number + 1,  # room for a whole draft in every round
        sampling=SamplingParams(temperature=temperature),
        seed=settings.seed,
        num_draft_tokens=number,
    )
    most = settings.max_tokens
    return run_trial(engine, prompt, params, drafter, should_stop=lambda n: n >= most).stats


def _total(
    name: str, shape: Shape, temperature: float, number: int, replies: Sequence[Mapping[str, Any]]
) -> Acceptance:
    def total(figure: str) -> Any:
        return sum(reply[figure] for reply in replies)

    by_depth = zip_longest(*(reply["accepted_at_depth"] for reply in replies), fillvalue=0)
    return Acceptance(
        drafter=name,
        shape=shape,
        temperature=temperature,
        num_draft_tokens=number,
        num_answers=len(replies),
        num_tokens=total("generated_tokens"),
        forwards=total("target_forwards"),
        drafted=total("drafted"),
        accepted_at_depth=tuple(map(sum, by_depth)),
        draft_s=total("draft_s"),
    )


def _cells(result: Acceptance) -> list[str]:
    rates = [cell(rate) for rate in result.acceptance_by_depth[:_DEPTHS_SHOWN]]
    milliseconds = 1e3 * result.draft_s / result.forwards if result.forwards else 0.0
    return [
        *(result.drafter, result.shape, f"{result.temperature:g}", str(result.num_draft_tokens)),
        cell(result.tokens_per_forward, 3),
        *rates,
        *["-"] * (_DEPTHS_SHOWN - len(rates)),
        *(str(result.forwards), cell(milliseconds)),
    ]
