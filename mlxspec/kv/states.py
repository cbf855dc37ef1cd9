"""Recurrent states: a layer's summary of the whole past, one version per staged row.

The state of a recurrent layer cannot be cut off as keys and values can. So a forward over a draft
keeps the state after *each* of its rows. A row starts from the state of its parent, a commit keeps
the state after the last row of the path, and a rollback keeps the committed one. Arrays never
change in MLX, so a version of a state is a reference, not a copy.

A leaf holds several arrays (a convolution's last inputs, a matrix), which layers may set at
different times of one forward. So a row reads each from the nearest of its ancestors that has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from mlxspec.errors import CacheError

Snapshot = Sequence[dict[int, mx.array]]
"""The committed arrays of every leaf."""

Row = tuple[int, int]
"""A staged row: its sequence and its index among the staged rows of that sequence."""


@dataclass
class _Leaf:
    """The arrays (B, ...) of one leaf, by their index: committed, after a text, after each row."""

    committed: dict[int, mx.array] = field(default_factory=dict)
    whole: dict[int, mx.array] = field(default_factory=dict)
    # That of a row is stored as the array of its level and an index.
    of_row: dict[tuple[Row, int], tuple[mx.array, int]] = field(default_factory=dict)

    def forget(self) -> None:
        self.whole, self.of_row = {}, {}


class States:
    """The states of all recurrent layers of one model, for one or more sequences.

    Attributes:
        levels: The rows of the forward in progress, parents before children; None for a text, which
            is committed as a whole.
        num_staged: Rows that are staged after the committed text.
    """

    def __init__(self, num_leaves: int, num_sequences: int = 1) -> None:
        self._leaves = [_Leaf() for _ in range(num_leaves)]
        self._num_sequences = num_sequences
        self._parents: list[list[int]] = [[] for _ in range(num_sequences)]
        self.levels: list[list[Row]] | None = None
        self.num_staged = 0

    def __len__(self) -> int:
        return len(self._leaves)

    # ---- a forward -------------------------------------------------------------------------

    def expect_text(self, num_rows: int) -> None:
        """Announce a forward over a text: either all of its rows are committed, or none."""
        self.forget()
        self.levels, self.num_staged = None, num_rows

    def expect_rows(self, parents: Sequence[Sequence[int]]) -> None:
        """Announce a forward over rows after those that are staged already.

        `parents` gives, per sequence, the parent of each new row as an index among all its staged
        rows, earlier than the row itself; -1 for a row that follows the committed text.
        """
        first = len(self._parents[0])
        levels: dict[int, list[Row]] = {}
        depth: dict[Row, int] = {}
        for sequence, own in enumerate(parents):
            for row, parent in enumerate(own, first):
                depth[sequence, row] = depth.get((sequence, parent), -1) + 1
                levels.setdefault(depth[sequence, row], []).append((sequence, row))
            self._parents[sequence].extend(own)
        self.levels = [levels[level] for level in sorted(levels)]
        self.num_staged = len(self._parents[0])

    def read(self, leaf: int, index: int, rows: Sequence[Row] | None) -> mx.array | None:
        """Return the (n, ...) state from which rows start, or None at the start of a text.

        It is array `index` of a leaf. `rows` are the rows of one level; None for a text.
        """
        own = self._leaves[leaf]
        if rows is None:
            return own.whole.get(index, own.committed.get(index))
        sources = [self._source(own, index, row) for row in rows]
        if any(source is None for source in sources):
            return None
        found = [source for source in sources if source is not None]
        arrays = {id(array): array for array, _ in found}
        if len(arrays) == 1:
            (array,) = arrays.values()
            picks = [at for _, at in found]
            if picks == list(range(array.shape[0])):
                return array
            return array[mx.array(picks, mx.int32)]
        return mx.concatenate([array[at : at + 1] for array, at in found])

    def write(self, leaf: int, index: int, value: mx.array, rows: Sequence[Row] | None) -> None:
        """Store the (n, ...) state after rows; arguments as in `read`."""
        own = self._leaves[leaf]
        if rows is None:
            own.whole[index] = value
            return
        for at, row in enumerate(rows):
            own.of_row[row, index] = (value, at)

    def _source(self, leaf: _Leaf, index: int, row: Row) -> tuple[mx.array, int] | None:
        sequence, at = row
        while at >= 0:
            if ((sequence, at), index) in leaf.of_row:
                return leaf.of_row[(sequence, at), index]
            at = self._parents[sequence][at]
        committed = leaf.committed.get(index)
        return None if committed is None else (committed, sequence)

    # ---- keeping one version ---------------------------------------------------------------

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Keep, per sequence, the state after the last row of a path; forget the others."""
        if self.levels is None and self.num_staged:
            self._commit_text(paths)
        elif any(paths):
            for leaf in self._leaves:
                leaf.committed = self._after(leaf, paths)
        self.forget()

    def _commit_text(self, paths: Sequence[Sequence[int]]) -> None:
        if not any(paths):
            return
        if any(list(path) != list(range(self.num_staged)) for path in paths):
            raise CacheError("a text is committed whole where a layer has a recurrent state")
        for leaf in self._leaves:
            leaf.committed = leaf.committed | leaf.whole

    def _after(self, leaf: _Leaf, paths: Sequence[Sequence[int]]) -> dict[int, mx.array]:
        after: dict[int, mx.array] = {}
        for index in {index for _, index in leaf.of_row} | set(leaf.committed):
            ends = [(at, path[-1] if path else -1) for at, path in enumerate(paths)]
            found = [self._source(leaf, index, row) for row in ends]
            parts = [array[at : at + 1] for array, at in filter(None, found)]
            after[index] = parts[0] if len(parts) == 1 else mx.concatenate(parts)
        return after

    def fill(self, sequence: int, source: "States") -> None:
        """Replace the states of a sequence by a copy of the committed states of another text."""
        self.forget()
        for own, other in zip(self._leaves, source._leaves, strict=True):
            # A text without tokens has no state yet: it must not start from the previous sequence's
            # state.
            blank = {i: mx.zeros_like(a[:1]) for i, a in own.committed.items()}
            for index, state in (blank | other.committed).items():
                kept = own.committed.get(index)
                if kept is None:
                    kept = mx.zeros((self._num_sequences, *state.shape[1:]), state.dtype)
                parts = [kept[:sequence], state, kept[sequence + 1 :]]
                own.committed[index] = mx.concatenate(parts)

    def keep(self, sequences: Sequence[int]) -> None:
        """Keep the sequences with these indices, in this order, and forget the others."""
        self._num_sequences = len(sequences)
        self.forget()
        at = mx.array(list(sequences), mx.int32)
        for leaf in self._leaves:
            kept = leaf.committed if sequences else {}
            leaf.committed = {index: state[at] for index, state in kept.items()}

    def add(self, count: int) -> None:
        """Append sequences with the states of an empty text."""
        self._num_sequences += count
        self.forget()
        for leaf in self._leaves:
            leaf.committed = {
                index: mx.concatenate([state, mx.zeros((count, *state.shape[1:]), state.dtype)])
                for index, state in leaf.committed.items()
            }

    def of_sequence(self, sequence: int) -> Snapshot:
        """Return the committed states of one sequence."""
        return [
            {index: state[sequence : sequence + 1] for index, state in leaf.committed.items()}
            for leaf in self._leaves
        ]

    def snapshot(self) -> Snapshot:
        """Return the committed states; arrays never change, so nothing is copied."""
        return [dict(leaf.committed) for leaf in self._leaves]

    def restore(self, snapshot: Snapshot) -> None:
        """Commit the states of a snapshot again, and forget all staged rows."""
        for leaf, committed in zip(self._leaves, snapshot, strict=True):
            leaf.committed = dict(committed)
        self.forget()

    def forget(self) -> None:
        """Forget all staged rows."""
        self.levels, self.num_staged = None, 0
        self._parents = [[] for _ in range(self._num_sequences)]
        for leaf in self._leaves:
            leaf.forget()

    @property
    def arrays(self) -> list[mx.array]:
        """The committed arrays, to evaluate or to measure."""
        return [array for leaf in self._leaves for array in leaf.committed.values()]
