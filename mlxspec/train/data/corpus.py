"""Conversations that a target wrote itself: token ids, and a mask of the assistant's tokens.

One safetensors file holds many conversations, one after the other:

    tokens          (N,) unsigned integers, chat template included
    offsets         (conversations + 1,) int64, start of each conversation, then the end of the last
    assistant_mask  (N,) uint8: 0 prompt, 1 written greedily, 2 and more sampled
    heldout         (conversations,) uint8: 1 if training must not see it

A corpus is such a file, or a folder of shards `corpus-00000.safetensors` and so on, with
`corpus.json`, which records its settings.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel
from mlxspec.loading.tensor_files import write_safetensors

GREEDY = 1
_SETTINGS = "corpus.json"
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


# ---- its settings ------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataSettings:
    """Settings of a corpus; a share is a number from 0 to 1.

    Attributes:
        greedy_share: Share of the answers that are greedy.
        temperatures: Temperatures of the sampled answers, with equal probability.
        max_answer_tokens: A longer answer is cut.
        max_prompt_tokens: A longer user turn by the model is dropped.
        second_turn_share: Share of the conversations with a second turn, if the first answer ended.
        num_tokens: Minimum number of tokens, prompts included.
        batch_size: Conversations that are written together.
        heldout_share: Share of conversations that training must not see.
        prompts: File of prompts (see `read_prompts`). Half of the conversations start with one of
            them until all are used; None for the model's own prompts alone.
        tries_per_shard: Conversations started for a shard; filters drop some of them.
    """

    greedy_share: float = 0.5
    temperatures: tuple[float, ...] = (0.7, 1.0)
    max_answer_tokens: int = 300
    max_prompt_tokens: int = 120
    second_turn_share: float = 0.1
    num_tokens: int = 1_000_000
    batch_size: int = 32
    heldout_share: float = 0.05
    seed: int = 0
    prompts: Path | None = None
    tries_per_shard: int = 256

    def __post_init__(self) -> None:
        for name in ("greedy_share", "second_turn_share", "heldout_share"):
            share = getattr(self, name)
            _check(name, share, "between 0 and 1", 0 <= share <= 1)
        for name in ("num_tokens", "batch_size", "tries_per_shard", "max_answer_tokens"):
            _check(name, getattr(self, name), "1 or more", getattr(self, name) >= 1)
        turn = self.max_prompt_tokens
        _check("max_prompt_tokens", turn, "2 or more, for a word and its end", turn >= 2)
        _check("seed", self.seed, "0 or more", self.seed >= 0)
        heats = self.temperatures
        are_right = all(0 < t < math.inf for t in heats) and len(heats) <= 250
        _check("temperatures", heats, "at most 250 numbers above 0", are_right)
        is_enough = bool(heats) or self.greedy_share == 1
        _check("temperatures", heats, "empty only where greedy_share is 1", is_enough)


def claim_folder(folder: Path, loaded: LoadedModel, settings: DataSettings) -> None:
    """Make a folder with the file of settings, or check that an existing one has the same settings.

    Only the number of tokens may differ. Raises `MlxspecError` if another setting does, or if the
    file cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, wanted = folder / _SETTINGS, _description(loaded, settings)
    if not path.exists():
        partial = path.with_suffix(".partial")  # an interruption leaves no half-written settings
        partial.write_text(json.dumps(wanted, indent=1) + "\n")
        partial.replace(path)
        return
    try:
        held = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise MlxspecError(f"{path} cannot be read ({error}): use another folder") from error
    for name, value in wanted.items():
        if held.get(name) != value:
            raise MlxspecError(
                f"{folder} holds a corpus whose {name} is {held.get(name)}, not {value}: use the "
                "same settings to continue it, or another folder"
            )


def _description(loaded: LoadedModel, settings: DataSettings) -> dict[str, Any]:
    """Return everything that determines the content of a shard, in types of JSON."""
    own = asdict(settings)
    del own["num_tokens"]  # more tokens only add shards
    own["temperatures"] = list(settings.temperatures)
    own["prompts"] = _digest(settings.prompts)  # its content counts, not its path
    return {
        "target": loaded.name,
        "weights": loaded.weights,
        "revision": loaded.revision,
        "tokenizer": loaded.tokenizer.fingerprint,
        **own,
    }


def _digest(path: Path | None) -> str | None:
    """Return the SHA-256 of a file; raises `MlxspecError` if it cannot be read."""
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise MlxspecError(f"the prompt file {path} cannot be read ({error})") from error


def _check(name: str, value: object, allowed: str, is_allowed: bool) -> None:
    if not is_allowed:
        raise ValueError(f"{name} must be {allowed}; got {value}")
