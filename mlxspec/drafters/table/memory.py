"""The table's memory: what it learned in all conversations, in a file of the user.

The file has the layout of a trained table: counts and probabilities of short token sequences, and
nothing else. Only its owner may read it, since it shows parts of conversations. Two processes that
learn at the same time lose nothing: a writer takes a lock, reads the file again and adds its new
rows. A file that cannot be used is replaced at the next save.

Within one conversation, recent occurrences predict best; over many conversations the plain mean is
better. So these rows are plain sums. When there are too many, the counts of all rows without a new
occurrence are halved and rows below one are dropped: rare and old rows go first.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.table.file import load_table, save_table
from mlxspec.drafters.table.rows import (
    MAX_ORDER,
    LearnedRows,
    Row,
    StoredRows,
    has_begun,
    row_starts,
    shorten,
)
from mlxspec.errors import MlxspecError
from mlxspec.files import locked

MAX_ROWS = (20_000, 60_000, 80_000)
"""Largest number of rows for contexts of one, two and three tokens: about 5 MB in a file."""

_SECONDS_BETWEEN = 300.0  # between saves: a killed process loses at most about this much
_MAX_NEW = 30_000  # rows per order since the last save, about 1 kB each
_WIDTHS = (16, 8, 8)  # per order: entries of a stored row
_MIN_PROB = 0.01
_MAX_COUNT = 255


class TableMemory:
    """The rows of one target, read from a file and added to it."""

    kept: Sequence[StoredRows]  # the rows of the file when it was last written or read, per order
    new: Sequence[LearnedRows]  # the rows learned since then; the sum of both is the current state

    def __init__(
        self,
        path: Path,
        vocab_size: int,
        *,
        tokenizer: str = "",
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Load the file, which need not exist; after an error, reported to `say`, start empty.

        `vocab_size` and `tokenizer` as in `load_table`.
        """
        self.path = path
        self._vocab_size, self._tokenizer, self._say = vocab_size, tokenizer, say
        self._guard = Lock()  # the end of a process may save while a reply is still learning
        self._saved_at = time.monotonic()
        self._keep(_empty())
        try:
            self._keep(self._read())
        except MlxspecError as error:
            say(f"warning: what the table learned before is not used: {error}")

    def learn(
        self,
        contexts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        probs: Sequence[Sequence[float]],
    ) -> None:
        """Add one occurrence of each context, with the target's most probable tokens after it."""
        with self._guard:
            for order, rows in enumerate(self.new, 1):
                for context, best, their in zip(contexts, tokens, probs, strict=True):
                    rows.learn(shorten(context, order), best, their)

    def save_if_due(self) -> None:
        if time.monotonic() - self._saved_at > _SECONDS_BETWEEN:
            self.save()

    def save(self) -> None:
        """Add the new rows to the file; report an error to `say` and continue."""
        with self._guard:
            self._saved_at = time.monotonic()
            if not any(map(len, self.new)):
                return
            try:
                with locked(self.path.with_suffix(".lock")):
                    self._keep(self._write())
            except (OSError, MlxspecError) as error:
                self._say(f"warning: what the table learned cannot be kept: {error}")

    def _write(self) -> list[StoredRows]:
        try:
            kept = self._read()
        except MlxspecError:
            kept = _empty()
        pairs = zip(kept, self.new, strict=True)
        total = [add_up(*of_order, order) for order, of_order in enumerate(pairs, 1)]
        save_table(self.path, total, self._vocab_size, tokenizer=self._tokenizer, is_private=True)
        return total

    def _read(self) -> list[StoredRows]:
        if not self.path.exists():
            return _empty()
        return load_table(self.path, self._vocab_size, tokenizer=self._tokenizer)

    def _keep(self, kept: Sequence[StoredRows]) -> None:
        self.kept = kept
        self.new = [LearnedRows(_MAX_NEW, decay=1.0) for _ in range(MAX_ORDER)]


def summed(rows: Iterable[Row]) -> Row:
    """Return the sum of rows of one context."""
    occurrences, masses = 0.0, dict[int, float]()
    for row in rows:
        occurrences += row.occurrences
        for token, mass in row.masses.items():
            masses[token] = masses.get(token, 0.0) + mass
    return Row(occurrences, masses)


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
        halved = replace(others, counts=others.counts // 2, _read={})
        others = _take(halved, np.flatnonzero(halved.counts))
    return _join(others, _stored(rows, _WIDTHS[order - 1]))


def _stored(rows: Mapping[int, Row], width: int) -> StoredRows:
    contexts = sorted(rows)
    entries = [_entries(rows[context], width) for context in contexts]
    flat = [entry for row in entries for entry in row]
    means = np.array([mean for _, mean in flat], np.float64)
    return StoredRows(
        contexts=np.array(contexts, np.int64),
        counts=np.array([min(rows[c].occurrences, _MAX_COUNT) for c in contexts], np.uint8),
        starts=row_starts(np.array([len(row) for row in entries], np.int64)),
        tokens=np.array([token for token, _ in flat], np.uint32),
        roots=np.rint(255 * np.sqrt(np.minimum(means, 1.0))).astype(np.uint8),
    )


def _entries(row: Row, width: int) -> list[tuple[int, float]]:
    best = nlargest(width, row.masses.items(), key=itemgetter(1))
    means = ((token, mass / row.occurrences) for token, mass in best)
    return [(token, mean) for token, mean in means if mean >= _MIN_PROB]


def _join(first: StoredRows, second: StoredRows) -> StoredRows:
    """Return the rows of both, which must have no common context."""
    sizes = np.concatenate([np.diff(first.starts), np.diff(second.starts)])
    joined = StoredRows(
        contexts=np.concatenate([first.contexts, second.contexts]),
        counts=np.concatenate([first.counts, second.counts]),
        starts=row_starts(sizes),
        tokens=np.concatenate([first.tokens, second.tokens]),
        roots=np.concatenate([first.roots, second.roots]),
    )
    return _take(joined, np.argsort(joined.contexts))


def _take(rows: StoredRows, index: NDArray[np.intp]) -> StoredRows:
    sizes = np.diff(rows.starts)[index]
    starts = row_starts(sizes)
    entries = np.arange(starts[-1]) + np.repeat(rows.starts[index] - starts[:-1], sizes)
    return StoredRows(
        contexts=rows.contexts[index],
        counts=rows.counts[index],
        starts=starts,
        tokens=rows.tokens[entries],
        roots=rows.roots[entries],
    )


def _empty() -> list[StoredRows]:
    return [_stored({}, width=0) for _ in range(MAX_ORDER)]
