"""Rows of next-token probabilities by context: a dict that grows, and sorted arrays from a file.

A row sums the target's probabilities over the occurrences of a context. So mass / occurrences is
their mean, and rows from different times can be added. `LearnedRows` grows with every round;
`StoredRows` has the rows of a file, in a tenth of the memory.

A context is one integer that packs the last three tokens, the latest in the lowest bits. A bit mask
gives the shorter contexts:

    ... The cat sat  ->  The+1 | cat+1 | sat+1      (21 bits each; 0 before the start of the text)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

MAX_ORDER = 3
"""Tokens in the longest context."""

STORED_PRIOR = 3.0
"""A stored row with c occurrences gets c / (c + 3) of the probability left by longer contexts."""

_TOKEN_BITS = 21  # three tokens fill a positive int64
_MASKS = tuple((1 << _TOKEN_BITS * order) - 1 for order in range(MAX_ORDER + 1))
_MAX_WIDTH = 32  # largest number of tokens of a learned row; a longer one is cut to half of it
_MAX_READ = 10_000  # stored rows that are also dicts in memory, for lookups five times as fast


def extend(context: int, *tokens: int) -> int:
    """Return the context after more tokens; 0 is the empty context."""
    for token in tokens:
        context = (context << _TOKEN_BITS | token + 1) & _MASKS[MAX_ORDER]
    return context


Context = TypeVar("Context", int, NDArray[np.int64])
"""A context, or an array of them."""


def shorten(context: Context, order: int) -> Context:
    """Return the context of only the last `order` tokens."""
    return context & _MASKS[order]


def has_begun(context: Context, order: int) -> Any:
    """Return whether a context has at least `order` tokens."""
    return context > _MASKS[order - 1]


def pack(contexts: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return (n,) contexts of (n, order) tokens; token -1 means before the start of the text."""
    packed = np.zeros(len(contexts), np.int64)
    for column in contexts.T:
        packed = packed << _TOKEN_BITS | column.astype(np.int64) + 1
    return packed


def unpack(contexts: NDArray[np.int64], order: int) -> NDArray[np.int64]:
    """Return the (n, order) tokens of (n,) contexts; -1 before the start of the text."""
    shifts = _TOKEN_BITS * np.arange(order - 1, -1, -1)
    return (contexts[:, None] >> shifts & _MASKS[1]) - 1


def row_starts(sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the (n + 1,) starts of n rows that follow each other, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


class Row(NamedTuple):
    """The next tokens of one context."""

    occurrences: float  # number of occurrences of the context, less by decay
    masses: Mapping[int, float]  # per token, the sum of its probabilities over the occurrences


class LearnedRows:
    """The rows of one order, learned from verified nodes.

    Above `max_rows`, half of them are dropped. Earlier occurrences are multiplied by `decay` at the
    next one; 1 gives the plain mean.
    """

    def __init__(self, max_rows: int, decay: float) -> None:
        self._max_rows, self._decay = max_rows, decay
        self._rows: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def get(self, context: int) -> Row | None:
        return self._rows.get(context)

    def learn(self, context: int, tokens: Sequence[int], probs: Sequence[float]) -> None:
        """Add one occurrence of a context: the target's most probable tokens after it."""
        row = self._rows.get(context)
        if row is None:
            self._rows[context] = Row(1.0, dict(zip(tokens, probs, strict=True)))
            if len(self._rows) > self._max_rows:
                self._halve()
            return
        masses = {token: mass * self._decay for token, mass in row.masses.items()}
        for token, prob in zip(tokens, probs, strict=True):
            masses[token] = masses.get(token, 0.0) + prob
        if len(masses) > _MAX_WIDTH:
            masses = dict(nlargest(_MAX_WIDTH // 2, masses.items(), key=itemgetter(1)))
        self._rows[context] = Row(row.occurrences * self._decay + 1.0, masses)

    def hold(self, max_rows: int) -> None:
        self._max_rows = max_rows
        while len(self._rows) > max_rows:
            self._halve()

    def _halve(self) -> None:
        """Drop half of the rows: first those with one occurrence; of these the oldest first."""
        by_worth = sorted(self._rows, key=lambda context: self._rows[context].occurrences > 1)
        for context in by_worth[: len(by_worth) // 2 + 1]:
            del self._rows[context]


@dataclass(frozen=True)
class StoredRows:
    """The rows of one order as arrays; row i has the entries `starts[i]` to `starts[i + 1]`."""

    contexts: NDArray[np.int64]  # (n,) in rising order
    counts: NDArray[np.uint8]  # (n,) occurrences, 255 for more
    starts: NDArray[np.int64]  # (n + 1,)
    tokens: NDArray[np.unsignedinteger]  # (entries,) token ids
    roots: NDArray[np.uint8]  # (entries,) square roots of the mean probabilities, 255 for 1
    _read: dict[int, Row | None] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.contexts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.contexts.tolist())

    def get(self, context: int) -> Row | None:
        if context not in self._read:
            if len(self._read) >= _MAX_READ:
                self._read.clear()
            self._read[context] = self._find(context)
        return self._read[context]

    def _find(self, context: int) -> Row | None:
        index = int(self.contexts.searchsorted(context))
        if index == len(self.contexts) or self.contexts[index] != context:
            return None
        count = int(self.counts[index])
        entries = slice(self.starts[index], self.starts[index + 1])
        masses = count * np.square(self.roots[entries] / 255.0)
        return Row(count, dict(zip(self.tokens[entries].tolist(), masses.tolist(), strict=True)))


Rows = LearnedRows | StoredRows
"""The rows of all contexts of one length."""
