"""Merge several drafters into one best-first tree.

Every drafter says what it expects to follow at a place, and how surely. What is expected by
several is one node, and how much each estimate weighs, alone, beside others or against them, is
learned while verifying, for greedy and for sampled text apart: at every visited node whatever was
expected came true or not, proposed or not. The mixed probabilities compete for the budget in one
heap, and a node bears the name of the drafter that was surest. (SAM decoding falls back from one
drafter to another, Hu et al. 2024, https://arxiv.org/abs/2411.10666; here they share every tree.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from mlxspec.device import backend
from mlxspec.drafters.base import Drafter, SamplingDrafter, fresh_drafter
from mlxspec.drafters.search.calibration import Mixer, log_odds
from mlxspec.drafters.search.growth import Cursor, HostDrafter, grow
from mlxspec.drafts.draft import Draft, RoundOutcome
from mlxspec.params import FREE, Law

_GREEDY_PRIORS = (
    ((1.0, 0.0),),
    ((1.0, -0.5), (0.6, 0.5)),
    ((0.9, -1.2), (0.5, 0.3), (0.4, 1.3)),
)
_SAMPLED_PRIORS = (
    ((0.9, -0.7),),
    ((0.75, -1.5), (0.5, 0.5)),
    ((0.6, -2.0), (0.5, 0.3), (0.35, 1.0)),
)
"""Per number of drafters that expect anything at a place: weight and bias where one, two, ... of
them expect a token. Fitted to replies of the default model, rounded, and a start only."""

_UNSTATED_PROB = 0.5  # of a node whose drafter gives no estimate; the mixer learns the bias


class PoolDrafter:
    """Proposes the likeliest paths that any of its drafters knows.

    Attributes:
        drafters: What it merges.
        limits: See `LimitedDrafter`.
    """

    name = "pool"
    limits = FREE

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        """Take over some drafters, which must not be used elsewhere.

        Args:
            drafters: Those that know their next-token probabilities on the host (`HostDrafter`)
                cost nothing but their time; the draft of any other is waited for and read. Those
                that may draw at random (`SamplingDrafter`) are told not to.

        Raises:
            ValueError: There is none, or two share a name.
        """
        names = [drafter.name for drafter in drafters]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"a pool needs drafters of different names, at least one; got {names}")
        for drafter in drafters:
            if isinstance(drafter, SamplingDrafter):
                drafter.samples = False
        self.num_top_tokens = max(drafter.num_top_tokens for drafter in drafters)
        self.drafters = tuple(drafters)
        self._names = tuple(names)
        self._mixers = {True: _Mixers(_GREEDY_PRIORS), False: _Mixers(_SAMPLED_PRIORS)}
        self._is_greedy = True
        self._cursor: _PoolCursor | None = None

    def fresh(self) -> "PoolDrafter":
        return PoolDrafter([fresh_drafter(drafter) for drafter in self.drafters])

    def start(self, prompt: Sequence[int], law: Law, key: mx.array) -> None:
        """Begin a reply with every drafter; each gets a random key of its own."""
        self._cursor = None
        self._is_greedy = law.is_greedy
        keys = mx.random.split(key, len(self.drafters))
        for drafter, own_key in zip(self.drafters, keys, strict=True):
            drafter.start(prompt, law, own_key)

    def propose(self, root: int, budget: int) -> Draft:
        """Return the tree of the likeliest paths.

        Raises:
            ValueError: A drafter drew its tokens at random: only its own draft keeps their law.
        """
        cursors = tuple(_cursor(drafter, root, budget) for drafter in self.drafters)
        self._cursor = _PoolCursor(self._names, self._mixers[self._is_greedy], cursors)
        return grow(root, self._cursor, budget, self.limits)

    def update(self, outcome: RoundOutcome) -> None:
        """Learn which expectations came true, and tell every drafter."""
        cursor, self._cursor = self._cursor, None
        for token in (*outcome.accepted, outcome.bonus_token):
            if cursor is not None:
                cursor.learn(token)
                cursor = cursor.below.get(token)
        for drafter in self.drafters:
            drafter.update(outcome)


class _Mixers:
    """One mixer for every set of drafters that expect anything at a place.

    Whoever is silent where others speak says less against them than one who names other tokens.
    """

    def __init__(self, priors: Sequence[Sequence[tuple[float, float]]]) -> None:
        self._priors = priors
        self._mixers: dict[tuple[int, ...], Mixer] = {}

    def of(self, speakers: tuple[int, ...]) -> Mixer:
        """Return the mixer for these drafters, by number, at least one."""
        mixer = self._mixers.get(speakers)
        if mixer is None:
            priors = self._priors[min(len(speakers), len(self._priors)) - 1]
            mixer = self._mixers[speakers] = Mixer(priors)
        return mixer


@dataclass(slots=True)
class _PoolCursor:
    """A place as all drafters see it; remembers what was expected there.

    Attributes:
        names: Names of the drafters.
        mixers: Weigh their estimates.
        cursors: The place as each of them sees it.
        below: The places that were reached from here, by token.
        expected: Per token, the log-odds by number of the drafter; filled by `next_probs`.
        mixer: The one that `next_probs` asked; None before that, or where nothing is expected.
    """

    names: tuple[str, ...]
    mixers: _Mixers
    cursors: tuple[Cursor, ...]
    below: dict[int, "_PoolCursor"] = field(default_factory=dict)
    expected: dict[int, dict[int, float]] = field(default_factory=dict)
    mixer: Mixer | None = None

    def next_probs(self) -> dict[int, float]:
        expected: dict[int, dict[int, float]] = {}
        speakers = []
        for source, cursor in enumerate(self.cursors):
            if probs := cursor.next_probs():
                speakers.append(source)
            for token, prob in probs.items():
                expected.setdefault(token, {})[source] = log_odds(prob)
        if not speakers:
            return {}
        self.expected = expected
        mixer = self.mixer = self.mixers.of(tuple(speakers))
        return {token: mixer.prob(estimates) for token, estimates in expected.items()}

    def source_of(self, token: int) -> str:
        estimates = self.expected[token]
        return self.names[max(estimates, key=estimates.__getitem__)]

    def child(self, token: int) -> "_PoolCursor":
        cursors = tuple(cursor.child(token) for cursor in self.cursors)
        self.below[token] = _PoolCursor(self.names, self.mixers, cursors)
        return self.below[token]

    def learn(self, token: int) -> None:
        """Learn from the token that followed here."""
        if self.mixer is None:
            return
        for candidate, estimates in self.expected.items():
            self.mixer.learn(estimates, candidate == token)


@dataclass(frozen=True)
class _DraftCursor:
    """A place in a draft that was read on the host.

    Attributes:
        name: Name of its drafter.
        children: Per node, the index of each child by its token.
        probs: Per node, the drafter's estimate that it follows its parent.
        node: The place; None beside the tree.
    """

    name: str
    children: Sequence[dict[int, int]]
    probs: Sequence[float]
    node: int | None = 0

    def next_probs(self) -> dict[int, float]:
        if self.node is None:
            return {}
        return {token: self.probs[child] for token, child in self.children[self.node].items()}

    def source_of(self, token: int) -> str:
        return self.name

    def child(self, token: int) -> "_DraftCursor":
        node = None if self.node is None else self.children[self.node].get(token)
        return _DraftCursor(self.name, self.children, self.probs, node)


def _cursor(drafter: Drafter, root: int, budget: int) -> Cursor:
    if isinstance(drafter, HostDrafter):
        return drafter.cursor(root)
    draft = drafter.propose(root, budget)
    if draft.sampled_from is not None:
        raise ValueError(
            f"the drafter {drafter.name!r} draws its tokens at random; a pool takes drafters that "
            "choose theirs: use it alone, or give it an attribute `samples` that makes it choose"
        )
    return _read(drafter.name, draft)


def _read(name: str, draft: Draft) -> _DraftCursor:
    """Wait for a draft and return the place at its root."""
    tree, stated = draft.tree, draft.node_probs
    backend.sync(tree.tokens, tree.parents, *([] if stated is None else [stated]))
    n_nodes = tree.n_nodes
    probs = [_UNSTATED_PROB] * (n_nodes - 1) if stated is None else backend.values(stated)
    children: list[dict[int, int]] = [{} for _ in range(n_nodes)]
    edges = zip(backend.values(tree.parents), backend.values(tree.tokens), strict=True)
    for node, (parent, token) in enumerate(edges):
        if node:
            children[parent][token] = node
    return _DraftCursor(name, children, [1.0, *probs])
