"""Rows of all conversations: counts that add up, and stay bounded.

What is learned in one conversation follows it and forgets; over many conversations the plain mean
does better than whatever came last. So these rows only sum. Where there is no more room, the
counts of all that did not come up lately are halved, and what falls below one is dropped: the
seldom and the old go first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import nlargest
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.table.rows import LearnedRows, Row, Rows, StoredRows, has_begun

MAX_ROWS = (20_000, 60_000, 80_000)
"""Rows to keep for contexts of one, two and three tokens: about 5 MB in a file."""

_MAX_NEW = 30_000  # rows per order that wait to be kept, about 1 kB each
_WIDTHS = (16, 8, 8)  # per order: entries of a row that is kept
_MIN_PROB = 0.01
_MAX_COUNT = 255


def summed(rows: Iterable[Row]) -> Row:
    """Return what some rows of one context are together."""
    occurrences, masses = 0.0, dict[int, float]()
    for row in rows:
        occurrences += row.occurrences
        for token, mass in row.masses.items():
            masses[token] = masses.get(token, 0.0) + mass
    return Row(occurrences, masses)


class CountedRows:
    """The rows of one order: those kept so far, and new ones.

    Attributes:
        kept: What was there when it was last written or read.
        new: What was learned since then.
    """

    def __init__(self) -> None:
        self.keep(_stored({}, width=0))

    @property
    def parts(self) -> tuple[Rows, ...]:
        """What adds up to the rows of now."""
        return self.kept, self.new

    def keep(self, kept: StoredRows) -> None:
        """Go on from rows that hold what is new already."""
        self.kept, self.new = kept, LearnedRows(_MAX_NEW, kept=1.0)


def add_up(kept: StoredRows, new: LearnedRows, order: int) -> StoredRows:
    """Return kept rows with new occurrences added, at most `MAX_ROWS` of them.

    Args:
        kept: Rows for contexts of `order` tokens.
        new: Rows for such contexts.
        order: 1, 2 or 3.
    """
    room = MAX_ROWS[order - 1]
    rows = {
        context: summed(row for part in (kept, new) if (row := part.get(context)) is not None)
        for context in new
        if has_begun(context, order)  # a file knows no other contexts
    }
    if len(rows) > room:
        rows = dict(nlargest(room, rows.items(), key=lambda item: item[1].occurrences))
    others = _take(kept, np.flatnonzero(~np.isin(kept.contexts, list(rows))))
    while len(others) + len(rows) > room:
        others = _halved(others)
    return _join(others, _stored(rows, _WIDTHS[order - 1]))


def _stored(rows: Mapping[int, Row], width: int) -> StoredRows:
    """Return rows as arrays, each cut to its most probable tokens."""
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
    """Return the most probable tokens of a row, each with its mean probability."""
    best = nlargest(width, row.masses.items(), key=itemgetter(1))
    means = ((token, mass / row.occurrences) for token, mass in best)
    return [(token, mean) for token, mean in means if mean >= _MIN_PROB]


def _halved(rows: StoredRows) -> StoredRows:
    halved = replace(rows, counts=rows.counts // 2, _read={})
    return _take(halved, np.flatnonzero(halved.counts))


def _join(first: StoredRows, second: StoredRows) -> StoredRows:
    """Return the rows of both, which share no context."""
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
    """Return the rows of some indices, in that order."""
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
