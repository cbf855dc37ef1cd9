"""The place in a predicted text where the reply stands, found again after every edit."""

from bisect import bisect_left
from collections.abc import Sequence

_GRAM = 3  # tokens that a place far away has to share with the reply
_NEAR = 48  # tokens around the lost place in which a single shared token will do
_MOST_COMPARED = 16  # a longer match is no better evidence
_MOST_PLACES = 64  # a passage that stands there more often says nothing about its place


class Place:
    """Where the reply stands in a predicted text.

    The reply begins at the first token of the prediction. As long as each emitted token is the
    predicted one, the place goes on. After another token it is looked for: the place with the
    longest common ending of reply and prediction counts, and of several the next one ahead.

    Attributes:
        index: Index of the predicted token that should come next; None while the place is lost.
        length: Tokens before it that reply and prediction have in common, as far as compared; at
            the begin of the reply `begin_length`.
    """

    def __init__(self, tokens: Sequence[int], begin_length: int) -> None:
        """Begin at the first token.

        Args:
            tokens: The predicted text.
            begin_length: What the begin of a reply counts as, in tokens of a match.
        """
        self._tokens = tuple(tokens)
        self._grams: dict[tuple[int, ...], list[int]] = {}
        for end in range(_GRAM, len(self._tokens) + 1):
            self._grams.setdefault(self._tokens[end - _GRAM : end], []).append(end)
        self._recent: list[int] = []
        self._last = 0  # where it was lost
        self.index: int | None = 0
        self.length = begin_length

    def ahead(self, count: int) -> tuple[int, ...]:
        """Return the next predicted tokens, at most `count`; none while the place is lost."""
        return () if self.index is None else self._tokens[self.index : self.index + count]

    def read(self, token: int) -> None:
        """Go on with an emitted token."""
        self._recent = [*self._recent[1 - _MOST_COMPARED :], token]
        if self.ahead(1) == (token,):
            assert self.index is not None
            self.index, self.length = self.index + 1, self.length + 1
            return
        if self.index is not None:
            self._last = self.index
        self.index, self.length = self._search()

    def _search(self) -> tuple[int | None, int]:
        """Return the best place after the recent tokens, and the length of its match."""
        far = self._grams.get(tuple(self._recent[-_GRAM:]), [])
        found = range(max(1, self._last - _NEAR), min(len(self._tokens), self._last + _NEAR) + 1)
        places = [*self._nearest(far), *found]
        length, _, place = max(
            ((self._common(end), -self._way_to(end), end) for end in places), default=(0, 0, 0)
        )
        return (place, length) if length else (None, 0)

    def _nearest(self, ends: Sequence[int]) -> Sequence[int]:
        """Return the places nearest to where it was lost, ahead and behind."""
        middle = bisect_left(ends, self._last)
        return ends[max(0, middle - _MOST_PLACES) : middle + _MOST_PLACES]

    def _way_to(self, end: int) -> int:
        """Return how far a place is; every place behind is farther than any ahead."""
        return end - self._last if end >= self._last else len(self._tokens) + self._last - end

    def _common(self, end: int) -> int:
        """Return the length of the common ending of the recent tokens and a beginning."""
        length = 0
        for token in reversed(self._recent):
            if length == end or self._tokens[end - length - 1] != token:
                break
            length += 1
        return length
