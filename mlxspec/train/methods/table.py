"""Observe in a target's own text what follows one, two and three tokens, to build a table from.

Where there are no features, the token that the target wrote follows a context with probability 1:
samples of much text are worth more than exact probabilities of little text.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.table.building import Occurrences
from mlxspec.drafters.table.rows import MAX_ORDER, pack
from mlxspec.errors import MlxspecError
from mlxspec.train.data.corpus import Conversation
from mlxspec.train.features import read_shard


def observe(
    conversations: Sequence[Conversation], shards: Iterable[Path] = ()
) -> list[Occurrences]:
    """Return the occurrences in each text of a corpus, without held-out conversations.

    `shards` are files of features; their conversations that are not in the corpus are ignored.
    """
    unseen = {c.tokens.tobytes(): c for c in conversations if not c.is_heldout}
    found: list[Occurrences] = []

    def add(text: Conversation, following: NDArray[np.int32], probs: NDArray[Any]) -> None:
        """Add what follows contexts that end before a token of the assistant."""
        begun = np.concatenate([np.full(MAX_ORDER - 1, -1), text.tokens])  # -1: before the text
        contexts = pack(np.lib.stride_tricks.sliding_window_view(begun, MAX_ORDER))
        if len(before := np.flatnonzero(text.mask[1:])):
            after = following[before], probs[before].astype(np.float32)
            found.append(Occurrences(contexts[before], *after))

    for shard in shards:
        for text in read_shard(shard):
            if unseen.pop(text.tokens.tobytes(), None) is not None:
                add(text, text.top_tokens, text.top_probs)
    for conversation in unseen.values():
        written = np.roll(conversation.tokens, -1)[:, None]
        add(conversation, written, np.ones(written.shape))
    if not found:
        raise MlxspecError(
            "there is no text to make a table from: all conversations are held out, or there is "
            "none; make some with `mlxspec train data`"
        )
    return sorted(found, key=lambda one: one.tokens.shape[1])
