"""Make the rows of a table from occurrences of contexts, as many as fit in a size.

A row is the mean of the distributions after all occurrences of a context. Its worth is its part of
the divergence from the prediction of the shorter contexts, times the number of occurrences. The
rows with the most worth per byte fill the allowed size. (Entropy-based pruning of backoff models,
Stolcke 1998, https://arxiv.org/abs/cs/0006025)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.table.file import row_bytes, token_type
from mlxspec.drafters.table.rows import MAX_ORDER, STORED_PRIOR, StoredRows, has_begun, shorten

DEFAULT_MAX_BYTES = 5_000_000

_HEADER_BYTES = 8_192  # reserved for the metadata of the file
_MIN_OCCURRENCES = (1, 2, 2)  # per order: a long context that occurred once seldom recurs
_WIDTHS = (16, 8, 4)  # per order: entries of a row
_MIN_PROB = 0.02  # a tree of a few dozen nodes has no node for less probable tokens
_NOTHING = 0.01  # a floor: tokens with lower probabilities count as unpredicted
_DISCOUNT = 0.5  # subtracted from the occurrences: a count overstates how often a row recurs


@dataclass(frozen=True)
class Occurrences:
    """Contexts in texts, and the tokens that follow them."""

    contexts: NDArray[np.int64]  # (n,) int64 packed contexts of up to three tokens
    tokens: NDArray[np.int32]  # (n, k) int32 next tokens, distinct in each row
    probs: NDArray[np.float32]  # (n, k) float32 probabilities


# ---- the rows of a file -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Means:
    """The mean row of every context of one length, rare ones included."""

    contexts: NDArray[np.int64]  # (n,) int64, ascending
    counts: NDArray[np.int64]  # (n,) occurrences
    keys: NDArray[np.int64]  # (entries,), ascending: context's index * vocabulary size + token
    probs: NDArray[np.float32]  # (entries,) mean probabilities


@dataclass(frozen=True)
class _Candidates:
    """Rows of one order that the file could hold, the most probable entries first."""

    contexts: NDArray[np.int64]  # (n,) int64, ascending
    counts: NDArray[np.int64]  # (n,) occurrences
    rows: NDArray[np.int64]  # (entries,) index of the row of each entry, ascending
    tokens: NDArray[np.int64]  # (entries,) int64
    probs: NDArray[np.float32]  # (entries,) mean probabilities
    worth: NDArray[np.float64]  # (n,) worth of each row, see above
    cost: NDArray[np.int64]  # (n,) bytes of each row


def build_table(
    occurrences: Sequence[Occurrences], vocab_size: int, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> list[StoredRows]:
    """Return the rows of a file of at most `max_bytes`: those with the most worth per byte.

    This takes about 4 GB of memory for 8 million tokens.
    """
    if max_bytes <= _HEADER_BYTES:
        raise ValueError(f"max_bytes must be more than {_HEADER_BYTES}, not {max_bytes}")
    candidates = _candidates(occurrences, vocab_size)
    worth = np.concatenate([one.worth for one in candidates])
    cost = np.concatenate([one.cost for one in candidates])
    ranked = np.argsort(-worth / cost, kind="stable")
    fits = (np.cumsum(cost[ranked]) <= max_bytes - _HEADER_BYTES) & (worth[ranked] > 0)
    is_kept = np.zeros(len(worth), bool)
    is_kept[ranked[fits]] = True
    ends = np.cumsum([len(one.contexts) for one in candidates])[:-1]
    return [
        _to_rows(one, kept, vocab_size)
        for one, kept in zip(candidates, np.split(is_kept, ends), strict=True)
    ]


# ---- means and their worth ---------------------------------------------------------------------


def _candidates(occurrences: Sequence[Occurrences], vocab_size: int) -> list[_Candidates]:
    """Return the candidates of each order; worth is relative to the order below."""
    found: list[_Candidates] = []
    below: _Means | None = None
    for order in range(1, MAX_ORDER + 1):
        means = _means(occurrences, order, vocab_size)
        rows, tokens = np.divmod(means.keys, vocab_size)
        is_seen = means.counts[rows] >= _MIN_OCCURRENCES[order - 1]
        entries = np.flatnonzero(is_seen & (means.probs >= _MIN_PROB))
        lower = np.zeros(len(means.keys), np.float32)
        if below is not None:
            suffixes = np.searchsorted(below.contexts, shorten(means.contexts, order - 1))
            keys = suffixes[rows[entries]] * vocab_size + tokens[entries]
            # what follows a context follows its suffix, so it is found
            lower[entries] = below.probs[np.searchsorted(below.keys, keys)]
        weight = (means.counts / (means.counts + STORED_PRIOR)).astype(np.float32)[rows]
        mixed = weight * means.probs + (1 - weight) * lower
        entries = entries[np.lexsort((-means.probs[entries], rows[entries]))]
        ranks = np.arange(len(entries)) - np.searchsorted(rows[entries], rows[entries])
        entries = entries[ranks < _WIDTHS[order - 1]]
        rows, probs = rows[entries], means.probs[entries]
        moved = np.log(np.maximum(mixed[entries], _NOTHING) / np.maximum(lower[entries], _NOTHING))
        divergence = np.bincount(rows, probs * moved, len(means.contexts))
        sizes = np.bincount(rows, minlength=len(means.contexts))
        found.append(
            _Candidates(
                contexts=means.contexts,
                counts=means.counts,
                rows=rows,
                tokens=tokens[entries],
                probs=probs,
                worth=divergence * (means.counts - _DISCOUNT),
                cost=row_bytes(order, sizes, vocab_size),
            )
        )
        below = replace(means, probs=mixed)
    return found


def _means(occurrences: Sequence[Occurrences], order: int, vocab_size: int) -> _Means:
    """Return the mean rows of the full contexts of one length."""
    shortened = [shorten(one.contexts, order) for one in occurrences]
    contexts, indices, counts = np.unique(
        np.concatenate(shortened), return_inverse=True, return_counts=True
    )
    is_full = has_begun(contexts, order)
    new_indices = np.cumsum(is_full) - 1
    ends = np.cumsum([len(one) for one in shortened])[:-1]
    keys_of, probs_of = [], []
    for one, own in zip(occurrences, np.split(indices, ends), strict=True):
        kept = is_full[own]
        keys_of.append((new_indices[own[kept]][:, None] * vocab_size + one.tokens[kept]).ravel())
        probs_of.append(one.probs[kept].ravel())
    keys, sums = np.concatenate(keys_of), np.concatenate(probs_of)
    ranked = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.diff(keys[ranked], prepend=-1))  # of each group of equal keys
    sums = np.add.reduceat(sums[ranked], first) if len(first) else sums
    keys, counts = keys[ranked][first], counts[is_full]
    means = (sums / counts[keys // vocab_size]).astype(np.float32)
    return _Means(contexts[is_full], counts, keys, means)


def _to_rows(one: _Candidates, is_kept: NDArray[np.bool_], vocab_size: int) -> StoredRows:
    entries = is_kept[one.rows]
    sizes = np.bincount(one.rows, minlength=len(one.contexts))[is_kept]
    return StoredRows(
        contexts=one.contexts[is_kept],
        counts=np.minimum(one.counts[is_kept], 255).astype(np.uint8),
        starts=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        tokens=one.tokens[entries].astype(token_type(vocab_size)),
        # square roots keep small probabilities apart in 8 bits
        roots=np.rint(255 * np.sqrt(np.minimum(one.probs[entries], 1.0))).astype(np.uint8),
    )
