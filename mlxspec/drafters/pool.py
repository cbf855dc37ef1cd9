"""The pool: merge several drafters into one best-first tree.

At each node every drafter estimates the next tokens. Equal tokens of several drafters are one node,
and a mixer weighs their estimates. The weights are learned from every verdict, separately for
greedy and for sampled text: each node on the accepted path shows which estimated tokens followed,
whether they were proposed or not. All nodes compete for the budget in one heap; a node's source is
the drafter with the highest estimate. (SAM decoding falls back from one drafter to another, Hu et
al. 2024, https://arxiv.org/abs/2411.10666; here they share every tree.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter, as_drafter, fresh_drafter
from mlxspec.drafters.search.calibration import Mixer, log_odds
from mlxspec.drafters.search.growth import Cursor, grow, read_draft
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, SamplingParams

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
"""Initial weight and bias of a mixer. Row: number of drafters with any estimate at the node;
column: number of drafters that estimate the token. Fitted to replies of the default model and
rounded; the mixers learn from there."""


class PoolDrafter(Drafter):
    """Proposes the most probable paths of all its drafters."""

    name = "pool"

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        """Merge drafters of different names, which must not be used elsewhere.

        The draft of a drafter without a `cursor` is copied to the host, which waits for the device.
        Sets `samples` of every drafter to False.
        """
        drafters = [as_drafter(drafter) for drafter in drafters]
        names = [drafter.name for drafter in drafters]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"a pool needs drafters of different names, at least one; got {names}")
        for drafter in drafters:
            if drafter.samples:
                drafter.samples = False
        self.num_top_tokens = max(drafter.num_top_tokens for drafter in drafters)
        self.stages_in_target = any(drafter.stages_in_target for drafter in drafters)
        self.drafters = tuple(drafters)
        self._names = tuple(names)
        self._mixers = {True: Mixer(_GREEDY_PRIORS), False: Mixer(_SAMPLED_PRIORS)}
        self._is_greedy = True
        self._cursor: _PoolCursor | None = None

    def fresh(self) -> "PoolDrafter":
        return PoolDrafter([fresh_drafter(drafter) for drafter in self.drafters])

    def fresh_for(self, target: Decoder) -> "PoolDrafter":
        return PoolDrafter([fresh_drafter(drafter, target) for drafter in self.drafters])

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        self._cursor = None
        self._is_greedy = sampling.is_greedy
        keys = mx.random.split(key, len(self.drafters))
        for drafter, own_key in zip(self.drafters, keys, strict=True):
            drafter.start(prompt, sampling, own_key)

    def propose(self, root: int, budget: int) -> Draft:
        return grow(root, self.cursor(root, budget), budget, self.limits)

    def cursor(self, root: int, budget: int = DEFAULT_NUM_DRAFT_TOKENS) -> "_PoolCursor":
        """Return the cursor after `root`, of drafters that propose `budget` nodes each."""
        cursors = tuple(_cursor(drafter, root, budget) for drafter in self.drafters)
        self._cursor = _PoolCursor(self._names, self._mixers[self._is_greedy], cursors)
        return self._cursor

    def update(self, round: Round) -> None:
        cursor, self._cursor = self._cursor, None
        for token in (*round.accepted, round.bonus_token):
            if cursor is not None:
                cursor.learn(token)
                cursor = cursor.below.get(token)
        for drafter in self.drafters:
            drafter.update(round)


@dataclass(slots=True)
class _PoolCursor:
    """The cursors of all drafters at one node, and their estimates there."""

    names: tuple[str, ...]
    mixer: Mixer
    cursors: tuple[Cursor, ...]
    below: dict[int, "_PoolCursor"] = field(default_factory=dict)  # the children, by token
    # Per token, log-odds by index of the drafter, and the drafters with any; from `next_probs`.
    expected: dict[int, dict[int, float]] = field(default_factory=dict)
    speakers: tuple[int, ...] = ()

    def next_probs(self) -> dict[int, float]:
        expected: dict[int, dict[int, float]] = {}
        speakers = []
        for source, cursor in enumerate(self.cursors):
            if probs := cursor.next_probs():
                speakers.append(source)
            for token, prob in probs.items():
                expected.setdefault(token, {})[source] = log_odds(prob)
        self.expected, self.speakers = expected, tuple(speakers)
        mix, speaking = self.mixer.prob, self.speakers
        return {token: mix(estimates, speaking) for token, estimates in expected.items()}

    def source_of(self, token: int) -> str:
        estimates = self.expected[token]
        return self.names[max(estimates, key=estimates.__getitem__)]

    def child(self, token: int) -> "_PoolCursor":
        cursors = tuple(cursor.child(token) for cursor in self.cursors)
        self.below[token] = _PoolCursor(self.names, self.mixer, cursors)
        return self.below[token]

    def learn(self, token: int) -> None:
        for candidate, estimates in self.expected.items():
            self.mixer.learn(estimates, self.speakers, candidate == token)


def _cursor(drafter: Drafter, root: int, budget: int) -> Cursor:
    cursor = drafter.cursor(root)
    if cursor is not None:
        return cursor
    draft = drafter.propose(root, budget)
    if draft.sampled_from is not None:  # a merged tree would not have its q
        raise ValueError(
            f"the drafter {drafter.name!r} draws its tokens at random; a pool takes drafters that "
            "do not: use it alone, or give it an attribute `samples` that a pool can set to False"
        )
    return read_draft(drafter.name, draft)
