"""Collect the occurrences for a table from a corpus: contexts, and the tokens that follow them.

With features of a conversation, the target's most probable next tokens follow, with their
probabilities. Without features, the token that the target wrote follows, with probability 1. That
is one sample: less exact, but it needs no forward, and samples of much text are worth more than
exact probabilities of little text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.table.rows import MAX_ORDER, pack
from mlxspec.errors import MlxspecError
from mlxspec.train.data.corpus import Conversation
from mlxspec.train.features import Features, read_shard


@dataclass(frozen=True)
class Occurrences:
    """Contexts in texts, and the tokens that follow them.

    Attributes:
        contexts: (n,) int64 packed contexts of up to three tokens.
        tokens: (n, k) int32 next tokens, distinct in each row.
        probs: (n, k) float32 probabilities.
    """

    contexts: NDArray[np.int64]
    tokens: NDArray[np.int32]
    probs: NDArray[np.float32]


def observe(
    conversations: Sequence[Conversation], shards: Iterable[Path] = ()
) -> list[Occurrences]:
    """Return the occurrences in a corpus, without held-out conversations.

    `shards` are files of features; their conversations that are not in the corpus are ignored.
    Raises `MlxspecError` if no conversation is left.
    """
    unseen = {c.tokens.tobytes(): c for c in conversations if not c.is_heldout}
    found: list[Occurrences] = []
    for shard in shards:
        for features in read_shard(shard):
            if unseen.pop(features.tokens.tobytes(), None) is not None:
                found.append(_of_features(features))
    found += [_of_samples(conversation) for conversation in unseen.values()]
    kinds = {
        width: [one for one in found if one.tokens.shape[1] == width] for width in _widths(found)
    }
    if not kinds:
        raise MlxspecError(
            "there is no text to make a table from: all conversations are held out, or there is "
            "none; make some with `mlxspec train data`"
        )
    return [_joined(occurrences) for occurrences in kinds.values()]


def _of_features(features: Features) -> Occurrences:
    positions = _before_assistant(features.mask)
    return Occurrences(
        _contexts(features.tokens)[positions],
        features.top_tokens[positions],
        features.top_probs[positions].astype(np.float32),
    )


def _of_samples(conversation: Conversation) -> Occurrences:
    positions = _before_assistant(conversation.mask)
    written = conversation.tokens[positions + 1][:, None]
    return Occurrences(
        _contexts(conversation.tokens)[positions], written, np.ones(written.shape, np.float32)
    )


def _before_assistant(mask: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the positions whose next token is the assistant's."""
    return np.flatnonzero(mask[1:])


def _contexts(tokens: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the (n,) contexts that end at each of (n,) tokens of one text."""
    begun = np.concatenate([np.full(MAX_ORDER - 1, -1), tokens])  # -1: before the start of the text
    return pack(np.lib.stride_tricks.sliding_window_view(begun, MAX_ORDER))


def _widths(read: Sequence[Occurrences]) -> list[int]:
    return sorted({one.tokens.shape[1] for one in read if len(one.contexts)})


def _joined(parts: Sequence[Occurrences]) -> Occurrences:
    return Occurrences(
        np.concatenate([part.contexts for part in parts]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.probs for part in parts]),
    )
