"""Attention masks: the boolean masks of one forward, one per distinct layer window.

A new row attends to a committed row if plain decoding at that position would still have it in the
cache, and to a staged row if it is on the new row's path. Masks compare positions, never slots. So
they are the same before and after a ring has wrapped, and for a prefill in chunks of any size.

The host knows the trees of a batch, so it makes their masks and positions and copies them to the
device once, instead of many small operations on the device.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import mlx.core as mx
import numpy as np

from mlxspec.kv.cache import Cache
from mlxspec.kv.windows import Mask

Masks = Mapping[int | None, Mask]
"""The mask per layer window (None for full attention).

It is (L, n_keys) bool, (B, 1, L, n_keys) if the sequences of a batch differ, "causal", or None if
every row attends to every key. The keys are those of all committed and staged rows; a layer that
has evicted rows takes the columns of the others (`Cache.visible`).
"""


def tree_masks(
    cache: Cache, positions: mx.array, on_path: mx.array, windows: Iterable[int | None]
) -> Masks:
    """Return the masks of new rows that form a tree, together with the staged rows.

    Args:
        cache: The cache, before the new rows are staged.
        positions: (n_staged + L,) int32 positions of the staged and the new rows.
        on_path: (L, n_staged + L) bool, True where a staged or new row is on a new row's path.
        windows: The distinct layer windows of the model.
    """
    rows = on_path.shape[0]
    if cache.max_size is None and set(windows) == {None}:
        if (
            on_path.shape == (1, 1) and not cache.has_blank_keys
        ):  # a root alone attends to all rows: attention needs no mask
            return {None: None}
        committed = mx.ones((rows, cache.num_committed), mx.bool_)
        return {None: _with_blank_keys(cache, mx.concatenate([committed, on_path], axis=1))}
    past = mx.array(cache.committed_positions())
    committed = mx.ones((rows, past.shape[0]), mx.bool_)
    allowed = mx.concatenate([committed, on_path], axis=1)
    key_positions = mx.concatenate([past, positions])
    return _within_windows(cache, positions[-rows:], key_positions, allowed, windows)


def chain_masks(cache: Cache, length: int, windows: Iterable[int | None]) -> Masks:
    """Return the masks of a chain of `length` new rows after the committed and staged rows."""
    windows = tuple(windows)
    staged = cache.num_staged
    if cache.max_size is None and windows == (None,) and not cache.has_blank_keys:
        return {None: None if length == 1 else "causal"}
    positions = cache.offset + mx.arange(staged + length, dtype=mx.int32)
    on_path = positions[staged:, None] >= positions[None]
    return tree_masks(cache, positions, on_path, windows)


def last_row_masks(cache: Cache, windows: Iterable[int | None]) -> Masks:
    """Return the masks to compute the last committed token again, while its row is committed."""
    position = mx.array([cache.offset - 1], mx.int32)
    past = mx.array(cache.committed_positions())
    # Excludes its committed row: the token would attend to itself twice.
    allowed = mx.concatenate([past < position, mx.array([True])])[None]
    key_positions = mx.concatenate([past, position])
    return _within_windows(cache, position, key_positions, allowed, windows)


def _within_windows(
    cache: Cache,
    positions: mx.array,
    key_positions: mx.array,
    allowed: mx.array,
    windows: Iterable[int | None],
) -> Masks:
    age = positions[:, None] - key_positions[None]  # (L, n_keys)
    fitted = partial(_with_blank_keys, cache)
    if cache.max_size is not None:
        ring = cache.max_size - cache.keep
        allowed = allowed & ((age < ring) | (key_positions < cache.keep)[None])
    return {w: fitted(allowed if w is None else allowed & (age < w)) for w in windows}


def _with_blank_keys(cache: Cache, mask: mx.array) -> mx.array:
    """Return a mask that also hides the blank keys with which a steady forward fills a block."""
    if not cache.has_blank_keys:
        return mask
    num_blank = cache.num_keys(mask.shape[1] - cache.num_committed) - mask.shape[1]
    return mx.concatenate([mask, mx.zeros((mask.shape[0], num_blank), mx.bool_)], axis=1)


# ---- a batch -----------------------------------------------------------------------------------


def batch_layout(
    offsets: Sequence[int], parents: Sequence[Sequence[int]], windows: Iterable[int | None]
) -> tuple[mx.array, Masks]:
    """Return the (B, L) int32 positions and the masks of a tree after each of several sequences.

    Args:
        offsets: Committed tokens of each sequence; they are in its first slots, directly followed
            by the nodes of its tree.
        parents: (B, L) parent of each node, -1 at the root; padding hangs below the root.
        windows: The distinct layer windows of the model.
    """
    depths, on_path = _paths(np.array(parents, np.int64))
    B, L = depths.shape
    n_keys = max(offsets) + L
    positions = np.array(offsets)[:, None] + depths
    key_positions = np.tile(np.arange(n_keys), (B, 1))
    allowed = np.zeros((B, L, n_keys), bool)
    for sequence, offset in enumerate(offsets):
        allowed[sequence, :, :offset] = True
        allowed[sequence, :, offset : offset + L] = on_path[sequence]
        key_positions[sequence, offset : offset + L] = positions[sequence]
    age = positions[:, :, None] - key_positions[:, None]
    masks = {
        window: mx.array((allowed if window is None else allowed & (age < window))[:, None])
        for window in windows
    }
    return mx.array(positions.astype(np.int32)), masks


def _paths(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (B, L) depths and (B, L, L) bool, each as `DraftTree.ancestors`."""
    B, L = parents.shape
    sequences = np.arange(B)
    on_path = np.zeros((B, L, L), bool)
    on_path[:, 0, 0] = True
    for node in range(1, L):
        on_path[:, node] = on_path[sequences, parents[:, node]]
        on_path[:, node, node] = True
    return on_path.sum(axis=2) - 1, on_path
