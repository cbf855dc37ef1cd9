"""The position of the reply in a predicted text, found again after every edit."""

from bisect import bisect_left
from collections.abc import Sequence

_GRAM = 3  # tokens that a far position must share with the reply
_NEAR = 48  # tokens around the lost position within which one shared token is enough
_MOST_COMPARED = 16  # a longer match is no better evidence
_MOST_PLACES = 64  # a passage that occurs more often is no evidence of the position


class Place:
    """The position of the reply in a predicted text.

    The reply starts at the first token of the prediction. While each emitted token is the predicted
    one, the position advances. After another token it is searched for: the position with the
    longest common suffix of reply and prediction wins, and among equals the nearest one ahead.

    Attributes:
        index: Index of the predicted token that should come next; None while the position is lost.
        length: Tokens before it that reply and prediction are known to share; `begin_length` at
            the start of the reply.
    """

    def __init__(self, tokens: Sequence[int], begin_length: int) -> None:
        """Start at the first token; a start counts as a match of `begin_length` tokens."""
        self._tokens = tuple(tokens)
        self._grams: dict[tuple[int, ...], list[int]] = {}
        for end in range(_GRAM, len(self._tokens) + 1):
            self._grams.setdefault(self._tokens[end - _GRAM : end], []).append(end)
        self._recent: list[int] = []
        self._last = 0  # where it was lost
        self.index: int | None = 0
        self.length = begin_length

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
        found = range(max(1, self._last - _NEAR), min(len(self._tokens), self._last + _NEAR) + 1)
        places = [*self._nearest(far), *found]
        length, _, place = max(
            ((self._common(end), -self._way_to(end), end) for end in places), default=(0, 0, 0)
        )
        return (place, length) if length else (None, 0)

    def _nearest(self, ends: Sequence[int]) -> Sequence[int]:
        """Return the positions nearest to the lost one, ahead and behind."""
        middle = bisect_left(ends, self._last)
        return ends[max(0, middle - _MOST_PLACES) : middle + _MOST_PLACES]

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
