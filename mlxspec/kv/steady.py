"""Steady forwards: forwards over a growing text whose shapes stay the same.

A product rounds as its shape decides: with one more key, the sum over all keys may be taken in
another order, and kernels change at certain numbers of keys. So a draft ends with its block of
keys, and where that is not enough, forwards read whole blocks, of which a mask hides the rest. A
token then has the same keys whether it is drafted or written.
"""

from dataclasses import dataclass

BLOCK = 256
"""Keys in a block. Kernels change at multiples of it."""

CHUNK = 128
"""Rows of a steady forward over a prompt. Chunks start at multiples of it, so that the rows of a
prompt depend on its text alone; whole ones serve every text that starts with them."""


@dataclass(frozen=True)
class Steady:
    """What steady forwards have in common."""

    rows: int  # of the largest forward over a draft
    pads_keys: bool  # whether forwards read whole blocks of keys, with room for `rows` new ones

    def num_keys(self, committed: int, staged: int) -> int:
        """Return the number of keys of a forward after which `staged` rows are staged."""
        if not self.pads_keys:
            return committed + staged
        least = committed + max(staged, self.rows)
        return -(-least // BLOCK) * BLOCK

    def room(self, committed: int) -> int:
        """Return how many more rows can be committed before forwards get another block.

        A forward with exactly the keys of whole blocks may belong to either side.
        """
        if self.pads_keys:
            return self.num_keys(committed, 0) - self.rows - committed
        return max(0, (committed // BLOCK + 1) * BLOCK - 1 - self.rows - committed)
