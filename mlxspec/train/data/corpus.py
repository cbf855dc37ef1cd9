"""Conversations that a target wrote itself: token ids, and a mask of the assistant's tokens.

One safetensors file holds many conversations, one after the other:

    tokens          (N,) unsigned integers, chat template included
    offsets         (conversations + 1,) int64, start of each conversation, then the end of the last
    assistant_mask  (N,) uint8: 0 prompt, 1 written greedily, 2 and more sampled
    heldout         (conversations,) uint8: 1 if training must not see it

A corpus is such a file, or a folder of shards `corpus-00000.safetensors` and so on.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from mlxspec.errors import MlxspecError
from mlxspec.loading.heads.file import write_safetensors

GREEDY = 1
_NAMES = ("tokens", "offsets", "assistant_mask", "heldout")


@dataclass(frozen=True)
class Conversation:
    """One conversation of (n,) int32 tokens; training must not see it if `is_heldout`.

    The (n,) uint8 mask is 0 for the prompt, 1 for greedy tokens, 2 and more for sampled ones.
    """

    tokens: NDArray[np.int32]
    mask: NDArray[np.uint8]
    is_heldout: bool

    @property
    def digest(self) -> bytes:
        """SHA-256 of the tokens, which identifies the conversation."""
        return digest_of(self.tokens)

    def spans(self, kind: int | None = None) -> list[tuple[int, int]]:
        """Return start and end of every answer, or of those whose mask is `kind`."""
        is_on = self.mask > 0 if kind is None else self.mask == kind
        edges = np.flatnonzero(np.diff(np.concatenate([[False], is_on, [False]])))
        return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def digest_of(tokens: NDArray[Any]) -> bytes:
    """Return the SHA-256 of token ids; the integer type does not change it."""
    return hashlib.sha256(tokens.astype("<i4").tobytes()).digest()


def shard_path(folder: Path, shard: int) -> Path:
    """Return the path of a shard; the first number is 0."""
    return folder / f"corpus-{shard:05d}.safetensors"


def load_corpus(path: str | Path, vocab_size: int) -> list[Conversation]:
    """Return the conversations of a file, or of all shards of a folder in order.

    Raises:
        MlxspecError: The path does not exist, the folder holds no shard, or a file cannot be read,
            lacks an array, is inconsistent, or holds a token outside a vocabulary of `vocab_size`.
    """
    path = Path(path)
    if not path.exists():
        raise MlxspecError(f"there is no corpus at {path}: make one with `mlxspec train data`")
    if not path.is_dir():
        return _load_file(path, vocab_size)
    shards = sorted(path.glob("corpus-*[0-9].safetensors"))
    if not shards:
        raise MlxspecError(
            f"{path} holds no corpus-*.safetensors: make a corpus with `mlxspec train data`"
        )
    return [conversation for shard in shards for conversation in _load_file(shard, vocab_size)]


def _load_file(path: Path, vocab_size: int) -> list[Conversation]:
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError, TypeError) as error:  # TypeError: bfloat16
        raise MlxspecError(f"{path} is not a corpus that can be read ({error})") from error
    missing = [name for name in _NAMES if name not in arrays]
    if missing:
        raise MlxspecError(f"{path} is not a corpus: it has no array {missing[0]!r}")
    if any(arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu" for name in _NAMES):
        raise MlxspecError(f"{path} is a damaged corpus: its arrays must be lists of integers")
    tokens, offsets, mask, heldout = (arrays[name] for name in _NAMES)
    offsets = offsets.astype(np.int64)  # unsigned differences would never be negative
    ends_match = len(offsets) and offsets[0] == 0 and offsets[-1] == len(tokens) == len(mask)
    if not ends_match or (np.diff(offsets) < 1).any() or len(heldout) != len(offsets) - 1:
        raise MlxspecError(f"{path} is a damaged corpus: its offsets do not fit its tokens")
    strange = tokens[(tokens < 0) | (tokens >= vocab_size)]
    if len(strange):
        raise MlxspecError(
            f"{path} holds the token {strange[0]}; the target's vocabulary ends at "
            f"{vocab_size - 1}: make a corpus with this target"
        )
    tokens = tokens.astype(np.int32)
    return [
        Conversation(tokens[start:end], mask[start:end].astype(np.uint8), bool(heldout[index]))
        for index, (start, end) in enumerate(pairwise(offsets.tolist()))
    ]


def save_corpus(path: str | Path, conversations: Sequence[Conversation]) -> None:
    """Write one or more conversations to a file atomically, or raise `MlxspecError`."""
    sizes = [len(conversation.tokens) for conversation in conversations]
    arrays: dict[str, NDArray[Any]] = {
        "tokens": np.concatenate([c.tokens for c in conversations]).astype(np.uint32),
        "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "assistant_mask": np.concatenate([c.mask for c in conversations]),
        "heldout": np.array([c.is_heldout for c in conversations], np.uint8),
    }
    write_safetensors(Path(path), {name: mx.array(array) for name, array in arrays.items()})
