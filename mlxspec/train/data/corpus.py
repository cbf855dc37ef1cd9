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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel
from mlxspec.loading.tensor_files import read_safetensors, write_safetensors
from mlxspec.params.setting import check_fields, number, setting, whole_number

GREEDY = 1


@dataclass(frozen=True)
class Conversation:
    """One conversation."""

    tokens: NDArray[np.int32]  # (n,)
    mask: NDArray[np.uint8]  # (n,): 0 for the prompt, 1 for greedy tokens, more for sampled ones
    is_heldout: bool  # whether training must not see it

    @property
    def digest(self) -> bytes:
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
    """Return the conversations of a file, or of all shards of a folder in order."""
    path = Path(path)
    if not path.exists():
        raise MlxspecError(f"there is no corpus at {path}: make one with `mlxspec train data`")
    shards = sorted(path.glob("corpus-*[0-9].safetensors")) if path.is_dir() else [path]
    if not shards:
        raise MlxspecError(
            f"{path} holds no corpus-*.safetensors: make a corpus with `mlxspec train data`"
        )
    return [conversation for shard in shards for conversation in _load_shard(shard, vocab_size)]


def _load_shard(path: Path, vocab_size: int) -> list[Conversation]:
    lazy, spans = read_texts(path, ("tokens", "assistant_mask"), "corpus", others=("heldout",))
    tokens, mask, heldout = (
        np.array(lazy[name]) for name in ("tokens", "assistant_mask", "heldout")
    )
    strange = tokens[(tokens < 0) | (tokens >= vocab_size)]
    if len(strange):
        raise MlxspecError(
            f"{path} holds the token {strange[0]}; the target's vocabulary ends at "
            f"{vocab_size - 1}: make a corpus with this target"
        )
    tokens, mask = tokens.astype(np.int32), mask.astype(np.uint8)
    return [
        Conversation(tokens[start:end], mask[start:end], bool(is_heldout))
        for (start, end), is_heldout in zip(spans, heldout, strict=True)
    ]


def read_texts(
    path: Path, rows: Sequence[str], kind: str, *, others: Sequence[str] = ()
) -> tuple[dict[str, mx.array], list[tuple[int, int]]]:
    """Return the lazy arrays of a file of texts, and where each text starts and ends.

    The first two of `rows`, which have one row a token, and `others`, one row a text, are integers.
    """
    arrays, _ = read_safetensors(path)
    for name in (*rows, "offsets", *others):
        if name not in arrays:
            raise MlxspecError(f"{path} is no {kind}: it has no array {name!r}")
    integers = [arrays[name] for name in (*rows[:2], "offsets", *others)]
    if any(a.ndim != 1 or not mx.issubdtype(a.dtype, mx.integer) for a in integers):
        raise MlxspecError(f"{path} is a damaged {kind}: its arrays must be lists of integers")
    offsets = np.array(arrays["offsets"]).astype(np.int64)
    lengths = {arrays[name].shape[0] for name in rows}
    ends_match = len(offsets) and offsets[0] == 0 and lengths == {offsets[-1]}
    texts_match = all(len(arrays[name]) + 1 == len(offsets) for name in others)
    if not (ends_match and texts_match) or (np.diff(offsets) < 1).any():
        raise MlxspecError(
            f"{path} is a damaged {kind}: its offsets do not fit its tokens; make it again"
        )
    return arrays, list(pairwise(offsets.tolist()))


def save_corpus(path: str | Path, conversations: Sequence[Conversation]) -> None:
    """Write one or more conversations to a file atomically, or raise `MlxspecError`."""
    arrays = written_texts(conversations)
    arrays["tokens"] = arrays["tokens"].astype(mx.uint32)
    arrays["heldout"] = mx.array([c.is_heldout for c in conversations], mx.uint8)
    write_safetensors(Path(path), arrays)


def written_texts(conversations: Sequence[Conversation]) -> dict[str, mx.array]:
    """Return the arrays that every file of texts has."""
    sizes = [len(conversation.tokens) for conversation in conversations]
    return {
        "tokens": mx.array(np.concatenate([c.tokens for c in conversations])),
        "offsets": mx.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)),
        "assistant_mask": mx.array(np.concatenate([c.mask for c in conversations])),
    }


# ---- its settings ------------------------------------------------------------------------------

_SHARE = number("between 0 and 1", lambda share: 0 <= share <= 1)
_COUNT = whole_number("1 or more", least=1)


@dataclass(frozen=True)
class DataSettings:
    """Settings of a corpus."""

    greedy_share: float = setting(0.5, _SHARE, "share of the answers that are greedy")
    temperatures: tuple[float, ...] = (0.7, 1.0)  # of the sampled answers, equally often
    max_answer_tokens: int = setting(300, _COUNT, "a longer answer is cut")
    max_prompt_tokens: int = setting(
        120, whole_number("2 or more, for a word and its end", least=2), "for a turn by the model"
    )
    second_turn_share: float = setting(0.1, _SHARE, "share with a second turn, if the first ended")
    num_tokens: int = setting(1_000_000, _COUNT, "fewest tokens, prompts included")
    batch_size: int = setting(32, _COUNT, "conversations that are written together")
    heldout_share: float = setting(0.05, _SHARE, "share that training must not see")
    seed: int = setting(0, whole_number(), "of prompts and answers")
    prompts: Path | None = None  # see `read_prompts`: half of the conversations start with one
    tries_per_shard: int = setting(256, _COUNT, "conversations started; filters drop some of them")

    def __post_init__(self) -> None:
        check_fields(self)


def claim_folder(folder: Path, loaded: LoadedModel, settings: DataSettings) -> None:
    """Make a folder with the file of settings, or check that an existing one has the same ones."""
    folder.mkdir(parents=True, exist_ok=True)
    path, wanted = folder / "corpus.json", _description(loaded, settings)
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


def _description(loaded: LoadedModel, settings: DataSettings) -> Mapping[str, Any]:
    """Return everything that determines the content of a shard, in types of JSON."""
    own = asdict(settings)
    del own["num_tokens"]  # more tokens only add shards
    # the content of the file counts, not its path
    given = settings.prompts and hashlib.sha256(Path(settings.prompts).read_bytes()).hexdigest()
    return {
        "target": loaded.name,
        "weights": loaded.weights,
        "revision": loaded.revision,
        "tokenizer": loaded.tokenizer.fingerprint,
        **own,
        "temperatures": list(settings.temperatures),
        "prompts": given,
    }
