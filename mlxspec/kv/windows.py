"""Rows of layers with a sliding window: those that no later row can see are evicted, in blocks.

    window 8     [ evicted ......... | held: slack, window | staged ]
    no window    [ held: all rows ......................... | staged ]

A new row sees no row that is more than a window older. A commit evicts such rows once they fill a
block: moving the remaining rows costs a few rows per token, whatever the context. Some slack stays,
so that a chat can go back a little without reading its text again. Masks are made for all
positions; each layer takes the columns that it holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

Mask = mx.array | str | None
"""Mask argument of `scaled_dot_product_attention`: bool, "causal", or None for all keys."""

Windows = tuple[int | None, ...]
"""Per layer, the number of latest rows that a new row may see, itself included; None for all."""


@dataclass(frozen=True)
class Eviction:
    """When layers with a window evict."""

    slack: int = 64  # rows held beyond the window: a text can always go back this many tokens
    block: int = 128  # rows evicted at once, at least; each eviction copies the remaining rows

    def num_due(self, length: int, window: int | None, evicted: int) -> int:
        """Return how many more rows a layer evicts once `length` tokens are committed.

        They are whole blocks, so the sum depends on `length` alone, not on the commits before.
        """
        due = 0 if window is None else max(0, length - window - self.slack - evicted)
        return due - due % self.block

    def next_at(self, window: int, evicted: int) -> int:
        """Return the number of committed tokens at which a layer evicts its next block."""
        return evicted + self.block + window + self.slack

    def most_held(self, window: int) -> int:
        """Return the most committed rows that a layer holds."""
        return window + self.slack + self.block - 1


USUAL_EVICTION = Eviction()


def can_go_back(length: int, evicted: Mapping[int | None, int]) -> bool:
    """Return whether the cache holds the rows that the last of the first `length` tokens sees.

    `evicted` gives the number of rows evicted so far, by window.
    """
    return all(n <= max(0, length - window) for window, n in evicted.items() if window is not None)


def held_columns(mask: mx.array, evicted: Sequence[int], num_held: int) -> mx.array:
    """Return the columns of a mask for the rows that sequences hold after their evictions.

    Args:
        mask: (B, 1, L, n_keys) bool over the rows of all positions.
        evicted: Number of rows that each sequence has evicted.
        num_held: Columns to return; those after the rows of a sequence are hidden.
    """
    hidden = mx.zeros((*mask.shape[:3], 1), mx.bool_)
    columns = mx.array(list(evicted))[:, None] + mx.arange(num_held)
    columns = mx.minimum(columns, mask.shape[3])[:, None, None]
    columns = mx.broadcast_to(columns, (*mask.shape[:3], num_held))
    return mx.take_along_axis(mx.concatenate([mask, hidden], axis=3), columns, axis=3)
