"""Which tokens a small drafter speaks of: those that the target writes most often."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open


def count_tokens(shards: Iterable[Path], vocab_size: int) -> NDArray[np.int64]:
    """Return (V,) how often the assistant wrote each token in some feature shards."""
    counts = np.zeros(vocab_size, np.int64)
    for path in shards:
        with safe_open(path, framework="np") as file:  # of a large file only these are read
            tokens, mask = file.get_tensor("tokens"), file.get_tensor("assistant_mask")
        counts += np.bincount(tokens[mask > 0], minlength=vocab_size)
    return counts


def most_frequent(counts: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Return the (size,) int32 most frequent tokens, in ascending order."""
    return np.sort(np.argsort(-counts, kind="stable")[:size]).astype(np.int32)
