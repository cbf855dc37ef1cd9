"""Which tokens a small drafter speaks of: those that the target writes most often."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import MlxspecError
from mlxspec.train.features import shard_arrays


def count_tokens(shards: Iterable[Path], vocab_size: int) -> NDArray[np.int64]:
    """Return (V,) how often the assistant wrote each token in some feature shards.

    Raises:
        MlxspecError: A shard is damaged, or holds tokens that the vocabulary does not have.
    """
    counts = np.zeros(vocab_size, np.int64)
    for path in shards:
        arrays = shard_arrays(path)
        tokens, mask = (np.array(arrays[name]) for name in ("tokens", "assistant_mask"))
        found = np.bincount(tokens[mask > 0], minlength=vocab_size)
        if len(found) > vocab_size:
            raise MlxspecError(
                f"{path} holds the token {len(found) - 1}; the target's vocabulary ends at "
                f"{vocab_size - 1}: make features with this target"
            )
        counts += found
    return counts


def most_frequent(counts: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Return the (size,) int32 most frequent tokens, in ascending order."""
    return np.sort(np.argsort(-counts, kind="stable")[:size]).astype(np.int32)
