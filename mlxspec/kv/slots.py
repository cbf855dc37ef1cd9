"""The slots of rows: which slot holds the row of a position, in a full and in a rotating cache.

    keep 2, max_size 6     [ 0 1 | 8 5 6 7 ]     after nine tokens

The first tokens, the attention sinks, stay. The slots after them are a ring: each new row replaces
the oldest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np


@dataclass(frozen=True)
class Slots:
    """The slots of a cache; `max_size` is None for a full one.

    A rotating cache never evicts its first `keep` tokens.
    """

    max_size: int | None = None
    keep: int = 0

    def num_used(self, length: int) -> int:
        """Return the number of slots in use after `length` tokens."""
        return length if self.max_size is None else min(length, self.max_size)

    def placement(self, rows: Sequence[int], offset: int) -> list[tuple[int, int]]:
        """Return (row, slot) of the rows to store; a ring stores only the last rows of many.

        The rows are in the order of their positions; `offset` is the position of the first.
        """
        end = offset + len(rows)
        placed = zip(rows, range(offset, end), strict=True)
        if self.max_size is None:
            return list(placed)
        ring = self.max_size - self.keep
        # Earlier rows of a long commit share their slots with later ones, and the later ones must
        # win.
        return [
            (row, self._slot(position, ring))
            for row, position in placed
            if position < self.keep or position >= end - ring
        ]

    def positions(self, length: int) -> np.ndarray:
        """Return the position of the token in each slot after `length` tokens, (slots,) int32."""
        slots = np.arange(self.num_used(length), dtype=np.int32)
        if self.max_size is None or length <= self.max_size:
            return slots
        last = length - 1
        ring = self.max_size - self.keep
        newest = last - (last - slots) % ring  # the latest position that maps to the slot
        return np.where(slots < self.keep, slots, newest).astype(np.int32)

    def _slot(self, position: int, ring: int) -> int:
        if position < self.keep:
            return position
        return self.keep + (position - self.keep) % ring


def runs(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive slots as (start, length), in order."""
    found = []
    for _, run in groupby(enumerate(slots), lambda item: item[1] - item[0]):
        members = [slot for _, slot in run]
        found.append((members[0], len(members)))
    return found
