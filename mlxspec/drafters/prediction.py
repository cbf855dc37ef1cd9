"""The prediction drafter: propose the text that the caller expects.

An edited text comes back nearly unchanged, and a caller who asks for an edit already has the text.
The drafter tracks the position of the reply in it, from the first token on, and proposes the tokens
that follow there as one chain. How long a chain pays depends on how long reply and prediction have
agreed: each length has a hit rate, learned from every emitted token. Where the prediction promises
less than the wrapped drafter, that drafter drafts. (Predicted outputs, OpenAI's API; as a copy from
the input: LLMA, Yang et al. 2023, https://arxiv.org/abs/2304.04487)

A predicted token is a guess, a draft without q, so the output distribution is the target's.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

import mlx.core as mx

from mlxspec.drafters.base import Drafter, WrappingDrafter
from mlxspec.drafters.search.calibration import HitRate
from mlxspec.drafters.search.growth import MIN_PATH_PROB
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams
from mlxspec.trace.stats import PREDICTION

_LENGTHS = (2, 3, 4, 6, 10, 18)  # starts of the bins of the hit rates, except the first
_BEGIN_LENGTH = 6
_GREEDY_RATES = (0.3, 0.5, 0.65, 0.8, 0.9, 0.97, 0.985)
_SAMPLED_RATES = (0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95)
_RATE = 0.1  # weight of one round in the moving mean
_GRAM = 3  # tokens that a far position must share with the reply
_NEAR = 48  # tokens around the lost position within which one shared token is enough
_MOST_COMPARED = 16  # a longer match is no better evidence
_MOST_PLACES = 64  # a passage that occurs more often is no evidence of the position


class PredictionDrafter(WrappingDrafter):
    """Proposes a predicted text where the reply follows it, else what another drafter proposes.

    Earlier rounds decide which of the two drafts, before either does. So a sampled draft of the
    other drafter still has the q that it states.
    """

    def __init__(self, tokens: Sequence[int], drafter: Drafter) -> None:
        super().__init__(PREDICTION, drafter)
        self._tokens = tuple(tokens)
        self._place = Place(self._tokens)
        self._rates: list[HitRate] = []
        self._gain_beside = 0.0  # moving mean of the accepted tokens of the other drafter's drafts
        self._was_beside = False

    def around(self, drafter: Drafter) -> "PredictionDrafter":
        return PredictionDrafter(self._tokens, drafter)

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        rates = _GREEDY_RATES if sampling.is_greedy else _SAMPLED_RATES
        self._rates = [HitRate(rate) for rate in rates]
        self._place = Place(self._tokens)
        self._gain_beside, self._was_beside = 0.0, False
        self._beside.start(prompt, sampling, key)

    def propose(self, root: int, budget: int) -> Draft:
        tokens = self._place.ahead(min(budget, self.limits.depth or budget))
        probs = [self._rate(self._place.length + depth).value for depth in range(len(tokens))]
        reached = [prob for prob in accumulate(probs, mul) if prob >= MIN_PATH_PROB]
        self._was_beside = sum(reached) < self._gain_beside or not reached
        if self._was_beside:
            return self._beside.propose(root, budget)
        count = len(reached)
        return Draft.from_lists(
            [root, *tokens[:count]],
            range(-1, count),
            (PREDICTION,) * count,
            probs[:count],
            reached,
        )

    def update(self, round: Round) -> None:
        accepted = round.accepted
        if self._was_beside:
            self._gain_beside += _RATE * (len(accepted) - self._gain_beside)
        for token in (*accepted, round.bonus_token):
            for predicted in self._place.ahead(1):
                self._rate(self._place.length).record(predicted == token)
            self._place.read(token)
        self._beside.update(round)

    def _rate(self, length: int) -> HitRate:
        return self._rates[bisect_right(_LENGTHS, length)]


class Place:
    """The position of the reply in a predicted text, found again after every edit.

    The reply starts at the first token of the prediction. While each emitted token is the predicted
    one, the position advances. After another token it is searched for: the position with the
    longest common suffix of reply and prediction wins, and among equals the nearest one ahead.
    """

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self._tokens = tokens
        self._grams: dict[tuple[int, ...], list[int]] = {}
        for end in range(_GRAM, len(self._tokens) + 1):
            self._grams.setdefault(self._tokens[end - _GRAM : end], []).append(end)
        self._recent: list[int] = []
        self._last = 0  # where it was lost
        self.index: int | None = 0  # of the token that should come next; None if it is lost
        self.length = _BEGIN_LENGTH  # tokens before it that both share; a start counts as several

    def ahead(self, count: int) -> tuple[int, ...]:
        """Return the next predicted tokens, at most `count`; none while the position is lost."""
        return () if self.index is None else self._tokens[self.index : self.index + count]

    def read(self, token: int) -> None:
        self._recent = [*self._recent[1 - _MOST_COMPARED :], token]
        if self.ahead(1) == (token,):
            assert self.index is not None
            self.index, self.length = self.index + 1, self.length + 1
            return
        if self.index is not None:
            self._last = self.index
        self.index, self.length = self._search()

    def _search(self) -> tuple[int | None, int]:
        """Return the best position after the recent tokens, and the length of its match."""
        far = self._grams.get(tuple(self._recent[-_GRAM:]), [])
        middle = bisect_left(far, self._last)
        far = far[max(0, middle - _MOST_PLACES) : middle + _MOST_PLACES]
        near = range(max(1, self._last - _NEAR), min(len(self._tokens), self._last + _NEAR) + 1)
        length, _, place = max(
            ((self._common(end), -self._way_to(end), end) for end in (*far, *near)),
            default=(0, 0, 0),
        )
        return (place, length) if length else (None, 0)

    def _way_to(self, end: int) -> int:
        """Return the distance of a position; every one behind is farther than any ahead."""
        return end - self._last if end >= self._last else len(self._tokens) + self._last - end

    def _common(self, end: int) -> int:
        """Return the length of the common suffix of the recent tokens and a prefix."""
        length = 0
        for token in reversed(self._recent):
            if length == end or self._tokens[end - length - 1] != token:
                break
            length += 1
        return length
