"""Rows of all conversations: sums of counts, limited in number.

Within one conversation, recent occurrences predict best; over many conversations the plain mean is
better. So these rows are plain sums. When there are too many, the counts of all rows without a new
occurrence are halved and rows below one are dropped: rare and old rows go first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import nlargest
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.table.rows import LearnedRows, Row, Rows, StoredRows, has_begun

MAX_ROWS = (20_000, 60_000, 80_000)
"""Largest number of rows for contexts of one, two and three tokens: about 5 MB in a file."""

_MAX_NEW = 30_000  # rows per order since the last save, about 1 kB each
_WIDTHS = (16, 8, 8)  # per order: entries of a stored row
_MIN_PROB = 0.01
_MAX_COUNT = 255


def summed(rows: Iterable[Row]) -> Row:
    """Return the sum of rows of one context."""
    occurrences, masses = 0.0, dict[int, float]()
    for row in rows:
        occurrences += row.occurrences
        for token, mass in row.masses.items():
            masses[token] = masses.get(token, 0.0) + mass
    return Row(occurrences, masses)


class CountedRows:
    """The rows of one order.

    Attributes:
        kept: The rows of the file when it was last written or read.
        new: The rows learned since then.
    """

    def __init__(self) -> None:
        self.keep(_stored({}, width=0))

    @property
    def parts(self) -> tuple[Rows, ...]:
        """Stored and new rows; their sum is the current state."""
        return self.kept, self.new

    def keep(self, kept: StoredRows) -> None:
        """Continue from stored rows that include the new rows."""
        self.kept, self.new = kept, LearnedRows(_MAX_NEW, decay=1.0)


def add_up(kept: StoredRows, new: LearnedRows, order: int) -> StoredRows:
    """Return stored rows with new occurrences added, at most `MAX_ROWS[order - 1]` of them."""
    room = MAX_ROWS[order - 1]
    rows = {
        context: summed(row for part in (kept, new) if (row := part.get(context)) is not None)
        for context in new
        if has_begun(context, order)  # a file has no shorter contexts
    }
    if len(rows) > room:
        rows = dict(nlargest(room, rows.items(), key=lambda item: item[1].occurrences))
    others = _take(kept, np.flatnonzero(~np.isin(kept.contexts, list(rows))))
    while len(others) + len(rows) > room:
        others = _halved(others)
    return _join(others, _stored(rows, _WIDTHS[order - 1]))


def _stored(rows: Mapping[int, Row], width: int) -> StoredRows:
    contexts = sorted(rows)
    entries = [_entries(rows[context], width) for context in contexts]
    flat = [entry for row in entries for entry in row]
    means = np.array([mean for _, mean in flat], np.float64)
    return StoredRows(
        contexts=np.array(contexts, np.int64),
        counts=np.array([min(rows[c].occurrences, _MAX_COUNT) for c in contexts], np.uint8),
        starts=_starts(np.array([len(row) for row in entries], np.int64)),
        tokens=np.array([token for token, _ in flat], np.uint32),
        roots=np.rint(255 * np.sqrt(np.minimum(means, 1.0))).astype(np.uint8),
    )


def _entries(row: Row, width: int) -> list[tuple[int, float]]:
    best = nlargest(width, row.masses.items(), key=itemgetter(1))
    means = ((token, mass / row.occurrences) for token, mass in best)
    return [(token, mean) for token, mean in means if mean >= _MIN_PROB]


def _halved(rows: StoredRows) -> StoredRows:
    halved = replace(rows, counts=rows.counts // 2, _read={})
    return _take(halved, np.flatnonzero(halved.counts))


def _join(first: StoredRows, second: StoredRows) -> StoredRows:
    """Return the rows of both, which must have no common context."""
    sizes = np.concatenate([np.diff(first.starts), np.diff(second.starts)])
    joined = StoredRows(
        contexts=np.concatenate([first.contexts, second.contexts]),
        counts=np.concatenate([first.counts, second.counts]),
        starts=_starts(sizes),
        tokens=np.concatenate([first.tokens, second.tokens]),
        roots=np.concatenate([first.roots, second.roots]),
    )
    return _take(joined, np.argsort(joined.contexts))


def _take(rows: StoredRows, index: NDArray[np.intp]) -> StoredRows:
    sizes = np.diff(rows.starts)[index]
    starts = _starts(sizes)
    entries = np.arange(starts[-1]) + np.repeat(rows.starts[index] - starts[:-1], sizes)
    return StoredRows(
        contexts=rows.contexts[index],
        counts=rows.counts[index],
        starts=starts,
        tokens=rows.tokens[entries],
        roots=rows.roots[entries],
    )


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
