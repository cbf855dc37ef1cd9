"""The expected number of accepted draft tokens: the drafter's estimate, corrected by observation.

A drafter that has its probabilities on the host gives a path probability for each node;
`PathRates` learns how far these are too high or too low. For a drafter on the device, only the
order of its nodes is known before it drafts: `IndexRates` learns how often the first, second, third
node is accepted. Both decay slowly, because texts change. (The labels are those of the verified
tree, as in DSpark and CaDDTree, https://arxiv.org/abs/2606.01813.)
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round

_PATH_BOUNDS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95)
_PATH_DECAY = 0.99
_PATH_PRIOR = 3.0  # imagined nodes, accepted as often as expected: no correction at first
_INDEX_DECAY = 0.985
_INDEX_PRIOR = 2.0  # imagined tries
_FIRST_RATE = 0.6  # prior acceptance rate of the first node
_NEXT_RATE = 0.8  # prior of each next node, relative to the rate of the node before


class PathRates:
    """Corrects path probabilities, each interval between `_PATH_BOUNDS` by its own factor."""

    def __init__(self) -> None:
        self._accepted = [_PATH_PRIOR] * (len(_PATH_BOUNDS) + 1)
        self._expected = [_PATH_PRIOR] * (len(_PATH_BOUNDS) + 1)

    def gains(self, path_probs: Sequence[float], num_certain: int = 0) -> list[float]:
        """Return the expected number of accepted tokens of the first 0, 1, 2, ... nodes."""
        rates = [1.0] * num_certain
        for prob in path_probs[num_certain:]:
            size = bisect_right(_PATH_BOUNDS, prob)
            rates.append(min(1.0, prob * self._accepted[size] / self._expected[size]))
        return [0.0, *accumulate(rates)]

    def learn(self, grown: Draft, round: Round) -> None:
        """Learn which nodes match the emitted text: the verified nodes and their children.

        Deeper nodes are left out: a match could not be seen there, so they would bias the rates.
        `grown` is a draft with path probabilities, before it was cut; `round` verified its first
        nodes.
        """
        tokens, parents = grown.tree.lists()
        emitted, num_verified = [*round.accepted, round.bonus_token], len(round.tokens)
        depths: list[int | None] = [0]  # None if not on the emitted text
        nodes = zip(tokens[1:], parents[1:], grown.path_probs or (), strict=True)
        for token, parent, prob in nodes:
            above = depths[parent] if parent < num_verified else len(emitted)
            is_open = above is not None and above >= len(emitted)
            is_on = above is not None and not is_open and emitted[above] == token
            depths.append(above + 1 if above is not None and is_on else None)
            if not is_open and len(depths) - 1 > grown.num_certain:
                self._record(prob, is_on)

    def _record(self, prob: float, is_accepted: bool) -> None:
        size = bisect_right(_PATH_BOUNDS, prob)
        self._accepted[size] = self._accepted[size] * _PATH_DECAY + is_accepted
        self._expected[size] = self._expected[size] * _PATH_DECAY + prob


class IndexRates:
    """Acceptance rate of a draft's nodes by their index."""

    def __init__(self) -> None:
        self._counts: list[tuple[float, float]] = []  # by index of the node: hits and tries

    def gains(self, most: int) -> list[float]:
        """Return the expected number of accepted tokens of 0, 1, ..., `most` requested nodes."""
        rates, before = [], _FIRST_RATE / _NEXT_RATE
        for index in range(most):
            hits, tries = self._counts[index] if index < len(self._counts) else (0.0, 0.0)
            prior = before * _NEXT_RATE
            before = (hits + _INDEX_PRIOR * prior) / (tries + _INDEX_PRIOR)
            rates.append(before)
        return [0.0, *accumulate(rates)]

    def learn(self, num_allowed: int, path: Sequence[int]) -> None:
        """Learn which requested nodes were accepted; a missing node counts as rejected."""
        self._counts += [(0.0, 0.0)] * (num_allowed - len(self._counts))
        for index in range(num_allowed):
            hits, tries = self._counts[index]
            is_hit = index + 1 in path
            self._counts[index] = hits * _INDEX_DECAY + is_hit, tries * _INDEX_DECAY + 1
