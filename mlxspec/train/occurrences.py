"""Read a corpus for a table: at every place the context, and what followed it.

Where features of a conversation are at hand, the target's most probable next tokens followed,
with their probabilities; else the token that it wrote, with probability 1. The second is a draw
of the first: less exact, but it costs no forward, and much text tells more than exact
probabilities of little.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.table.rows import MAX_ORDER, pack
from mlxspec.errors import MlxspecError
from mlxspec.train.corpus import Conversation
from mlxspec.train.features import Features, read_shard


@dataclass(frozen=True)
class Occurrences:
    """Places in texts, and what followed there.

    Attributes:
        contexts: (n,) int64 packed contexts of up to three tokens.
        tokens: (n, k) int32 next tokens, different ones in each row.
        probs: (n, k) float32 probabilities.
    """

    contexts: NDArray[np.int64]
    tokens: NDArray[np.int32]
    probs: NDArray[np.float32]


def observe(
    conversations: Sequence[Conversation], shards: Iterable[Path] = ()
) -> list[Occurrences]:
    """Return what followed where in a corpus; held-out conversations are left out.

    Args:
        conversations: The corpus.
        shards: Files of features; what they hold beside the corpus is left out too.

    Raises:
        MlxspecError: There is nothing to learn from.
    """
    unseen = {c.tokens.tobytes(): c for c in conversations if not c.is_heldout}
    read: list[Occurrences] = []
    for shard in shards:
        for features in read_shard(shard):
            if unseen.pop(features.tokens.tobytes(), None) is not None:
                read.append(_of_features(features))
    read += [_of_samples(conversation) for conversation in unseen.values()]
    kinds = {
        width: [one for one in read if one.tokens.shape[1] == width] for width in _widths(read)
    }
    if not kinds:
        raise MlxspecError(
            "there is no text to make a table from: all conversations are held out, or there is "
            "none; make some with `mlxspec train data`"
        )
    return [_joined(occurrences) for occurrences in kinds.values()]


def _of_features(features: Features) -> Occurrences:
    places = _before_assistant(features.mask)
    return Occurrences(
        _contexts(features.tokens)[places],
        features.top_tokens[places],
        features.top_probs[places].astype(np.float32),
    )


def _of_samples(conversation: Conversation) -> Occurrences:
    places = _before_assistant(conversation.mask)
    written = conversation.tokens[places + 1][:, None]
    return Occurrences(
        _contexts(conversation.tokens)[places], written, np.ones(written.shape, np.float32)
    )


def _before_assistant(mask: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the places whose next token is the assistant's."""
    return np.flatnonzero(mask[1:])


def _contexts(tokens: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return (n,) contexts that end in each of (n,) tokens of one text."""
    begun = np.concatenate([np.full(MAX_ORDER - 1, -1), tokens])  # -1: not begun
    return pack(np.lib.stride_tricks.sliding_window_view(begun, MAX_ORDER))


def _widths(read: Sequence[Occurrences]) -> list[int]:
    return sorted({one.tokens.shape[1] for one in read if len(one.contexts)})


def _joined(parts: Sequence[Occurrences]) -> Occurrences:
    return Occurrences(
        np.concatenate([part.contexts for part in parts]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.probs for part in parts]),
    )
