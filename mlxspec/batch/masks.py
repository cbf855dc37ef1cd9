"""Who sees whom in a batch: every sequence its own past, every node its own path.

Trees of a batch are known on the host, where drafters that read nothing but text grow them: masks
and positions are made there and handed over once, instead of by many small operations.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxspec.kv.masks import Masks


@dataclass(frozen=True)
class Layout:
    """Where the rows of a forward stand, and what they see.

    Attributes:
        positions: (B, L) int32.
        masks: Per layer window, (B, 1, L, n_keys) bool, True where attention is allowed.
    """

    positions: mx.array
    masks: Masks


def layout_of(
    offsets: Sequence[int], parents: Sequence[Sequence[int]], windows: Iterable[int | None]
) -> Layout:
    """Return the layout of trees behind sequences of different lengths.

    Args:
        offsets: Committed tokens of each sequence; they lie in its first slots, and the nodes of
            its tree right behind them.
        parents: (B, L) parent of each node, -1 at the root; padding hangs below the root.
        windows: The distinct layer windows of the model.
    """
    depths, on_path = _paths(np.array(parents, np.int64))
    B, L = depths.shape
    n_keys = max(offsets) + L
    positions = np.array(offsets)[:, None] + depths
    key_positions = np.tile(np.arange(n_keys), (B, 1))
    allowed = np.zeros((B, L, n_keys), bool)
    for place, offset in enumerate(offsets):
        allowed[place, :, :offset] = True
        allowed[place, :, offset : offset + L] = on_path[place]
        key_positions[place, offset : offset + L] = positions[place]
    age = positions[:, :, None] - key_positions[:, None]
    masks = {
        window: mx.array((allowed if window is None else allowed & (age < window))[:, None])
        for window in windows
    }
    return Layout(mx.array(positions.astype(np.int32)), masks)


def _paths(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (B, L) depths and (B, L, L) bool: True at [b, i, j] where j is i or lies above i."""
    B, L = parents.shape
    places = np.arange(B)
    on_path = np.zeros((B, L, L), bool)
    on_path[:, 0, 0] = True
    for node in range(1, L):
        on_path[:, node] = on_path[places, parents[:, node]]
        on_path[:, node, node] = True
    return on_path.sum(axis=2) - 1, on_path
