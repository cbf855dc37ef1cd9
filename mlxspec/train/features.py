"""Features: the target's states and probabilities along a corpus, computed once and stored.

For each token: the states entering the layers that drafters tap, the final norm's output, and the
target's most probable next tokens with their probabilities. One pass over the corpus costs far
more than training a small drafter, so all trainers share it. It is stored in shards, and an
interrupted pass continues. Conversations are in random order, held-out ones first, so that any
number of shards is a fair sample.

One shard is one safetensors file: `tokens`, `offsets` and `assistant_mask` as in a corpus, then
`final` and `entering.<layer>` (N, D) bfloat16, `top_tokens` (N, 8) and `top_probs` (N, 8). Rows
of `top_*` are zero where the next token is not the assistant's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.kv.states import States
from mlxspec.kv.windows import Mask
from mlxspec.loading.tensor_files import read_safetensors, write_safetensors
from mlxspec.models import TargetModel
from mlxspec.train.data.corpus import Conversation, digest_of
from mlxspec.verify.distribution import top_tokens

NUM_TOP_TOKENS = 8
CONVERSATIONS_PER_SHARD = 64
_NAMES = ("tokens", "assistant_mask", "final", "top_tokens", "top_probs")

Progress = Callable[[int], None]
"""Called with the number of tokens that were just computed."""


@dataclass(frozen=True)
class Features:
    """One conversation with the target's states and probabilities.

    Attributes:
        tokens: (n,) int32.
        mask: (n,) uint8, 0 where a token is not the assistant's.
        final: (n, D) outputs of the final norm.
        entering: Per layer, the (n, D) states that enter it.
        top_tokens: (n, 8) int32 most probable next tokens.
        top_probs: (n, 8) float16, zero where the next token is not the assistant's.
    """

    tokens: NDArray[np.int32]
    mask: NDArray[np.uint8]
    final: mx.array
    entering: dict[int, mx.array]
    top_tokens: NDArray[np.int32]
    top_probs: NDArray[np.float16]


class NoCache:
    """A cache that stores nothing: attention sees the rows of this forward alone.

    `quantization` is None because adapted models read it; the recurrent `states` start empty.
    """

    quantization = None

    def __init__(self, num_states: int = 0) -> None:
        self.states = States(num_states)

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values

    def visible(self, layer: int, mask: Mask) -> Mask:
        return mask


def compute_features(
    model: TargetModel, conversation: Conversation, layers: Sequence[int]
) -> Features:
    """Return the features of one conversation, with one forward.

    Raises `UnsupportedOperationError` if the states of the model are not one vector per token.
    """
    tokens = mx.array(conversation.tokens)[None]
    masks = {window: _causal(len(conversation.tokens), window) for window in _windows(model)}
    cache = NoCache(model.config.num_states)
    cache.states.expect_text(tokens.shape[1])
    final, captured = model.hidden_states(tokens, cache, 0, masks, capture=layers)
    if any(state.shape != final.shape for state in captured):
        raise UnsupportedOperationError(
            f"the layers of this model pass on states of the shape {captured[0].shape}, and its "
            f"head reads {final.shape}; a trained head needs one vector a token at both places: "
            "train a table, which needs no features"
        )
    mx.eval(final, captured)
    top_tokens, top_probs = _top(model, final[0], conversation.mask)
    return Features(
        conversation.tokens,
        conversation.mask,
        final[0],
        {layer: state[0] for layer, state in zip(layers, captured, strict=True)},
        top_tokens,
        top_probs,
    )


def missing_shards(
    conversations: Sequence[Conversation],
    folder: Path,
    *,
    max_heldout: int,
    max_train_shards: int | None = None,
) -> list[tuple[str, list[int]]]:
    """Return the shards that a folder lacks: the name of each and indices of its conversations.

    The order depends only on the tokens of the conversations, so that an interrupted run continues
    with the same shards. New conversations of a larger corpus get shards of their own. Both limits
    include what is stored; `max_train_shards` is None for no limit. The folder need not exist.
    """
    order = sorted(range(len(conversations)), key=lambda i: conversations[i].digest)
    heldout, num_shards, num_done = _waiting(conversations, order, folder, "heldout")
    shards = _cut("heldout", heldout[: max(max_heldout - num_done, 0)], num_shards)
    train, num_shards, _ = _waiting(conversations, order, folder, "train")
    limit = None if max_train_shards is None else max(max_train_shards - num_shards, 0)
    return [*shards, *_cut("train", train, num_shards)[:limit]]


def write_shards(
    model: TargetModel,
    conversations: Sequence[Conversation],
    shards: Sequence[tuple[str, list[int]]],
    folder: Path,
    layers: Sequence[int],
    on_progress: Progress,
) -> None:
    """Compute shards (see `missing_shards`); write each to the folder as soon as it is complete.

    The states that enter `layers` are stored. `on_progress` is called after every conversation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, members in shards:
        done: list[Features] = []
        for index in members:
            done.append(compute_features(model, conversations[index], layers))
            on_progress(len(conversations[index].tokens))
        _save_shard(folder / f"{name}.safetensors", done, layers)


def shard_paths(folder: Path, kind: str) -> list[Path]:
    """Return the paths of the shards of the kind "train" or "heldout", in order."""
    return sorted(folder.glob(f"{kind}-*[0-9].safetensors"))


def shard_arrays(path: Path) -> dict[str, mx.array]:
    """Return the arrays of a shard, lazy: only those that are used are loaded from the file.

    Raises `MlxspecError` if the file is damaged or is not a feature shard.
    """
    arrays, _ = read_safetensors(path)
    missing = [name for name in ("offsets", *_NAMES) if name not in arrays]
    if missing:
        raise MlxspecError(f"{path} holds no features: it has no array {missing[0]!r}")
    entering = [name for name in arrays if name.startswith("entering.")]
    lengths = {arrays[name].shape[0] for name in (*_NAMES, *entering)}
    offsets = np.array(arrays["offsets"])
    if len(offsets) == 0 or lengths != {offsets[-1]} or (np.diff(offsets, prepend=-1) < 1).any():
        raise MlxspecError(f"{path} is damaged: its offsets do not fit its arrays; make it again")
    return arrays


def shards_of_run(features: Path, folder: Path) -> list[Path]:
    """Return the training shards of a run: those that existed when it started.

    Later shards would change the order and the vocabulary of an interrupted run, so the run's
    folder stores the names. Raises `MlxspecError` if a shard no longer exists, or the names cannot
    be written.
    """
    shards = shard_paths(features, "train")
    path = folder / "shards.txt"
    if not shards or path.exists():
        return _kept(shards, path) if shards else []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(shard.name for shard in shards), encoding="utf-8")
    except OSError as error:
        raise MlxspecError(f"cannot write {path}: {error}") from error
    return shards


def _kept(shards: Sequence[Path], path: Path) -> list[Path]:
    """Return the shards that the file of a run lists."""
    there = {shard.name: shard for shard in shards}
    names = path.read_text(encoding="utf-8").split()
    missing = [name for name in names if name not in there]
    if missing:
        raise MlxspecError(
            f"the run in {path.parent} began with {missing[0]}, which is not among the features "
            "now: give the folder that it began with, or remove the run's to begin anew"
        )
    return [there[name] for name in names]


def read_shard(path: Path) -> Iterator[Features]:
    """Yield the conversations of a shard; raises what `shard_arrays` raises."""
    arrays = shard_arrays(path)
    offsets = np.array(arrays["offsets"]).tolist()
    names = ("tokens", "assistant_mask", "top_tokens", "top_probs")
    host = {name: np.array(arrays[name]) for name in names}
    layers = [int(key.split(".")[1]) for key in arrays if key.startswith("entering.")]
    for start, end in pairwise(offsets):
        yield Features(
            host["tokens"][start:end].astype(np.int32),
            host["assistant_mask"][start:end],
            arrays["final"][start:end],
            {layer: arrays[f"entering.{layer}"][start:end] for layer in layers},
            host["top_tokens"][start:end].astype(np.int32),
            host["top_probs"][start:end],
        )


def _waiting(
    conversations: Sequence[Conversation], order: Sequence[int], folder: Path, kind: str
) -> tuple[list[int], int, int]:
    """Return the conversations in no shard of a kind, the number of shards, and of stored ones."""
    paths = shard_paths(folder, kind)
    done = {digest for path in paths for digest in _digests(path)}
    wanted = [i for i in order if conversations[i].is_heldout == (kind == "heldout")]
    waiting = [i for i in wanted if conversations[i].digest not in done]
    num_shards = 1 + max((int(path.stem.removeprefix(f"{kind}-")) for path in paths), default=-1)
    return waiting, num_shards, len(done)


def _digests(path: Path) -> list[bytes]:
    arrays = shard_arrays(path)
    tokens, offsets = np.array(arrays["tokens"]), np.array(arrays["offsets"]).tolist()
    return [digest_of(tokens[start:end]) for start, end in pairwise(offsets)]


def _cut(kind: str, members: list[int], first: int) -> list[tuple[str, list[int]]]:
    """Return the members in shards of 64 conversations, numbered from `first`."""
    starts = range(0, len(members), CONVERSATIONS_PER_SHARD)
    return [
        (f"{kind}-{number:05d}", members[start : start + CONVERSATIONS_PER_SHARD])
        for number, start in enumerate(starts, first)
    ]


def _save_shard(path: Path, done: Sequence[Features], layers: Sequence[int]) -> None:
    sizes = [len(features.tokens) for features in done]
    arrays = {
        "tokens": mx.array(np.concatenate([f.tokens for f in done])),
        "offsets": mx.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)),
        "assistant_mask": mx.array(np.concatenate([f.mask for f in done])),
        "top_tokens": mx.array(np.concatenate([f.top_tokens for f in done])),
        "top_probs": mx.array(np.concatenate([f.top_probs for f in done])),
        "final": mx.concatenate([f.final for f in done]).astype(mx.bfloat16),
    }
    for layer in layers:
        states = mx.concatenate([f.entering[layer] for f in done])
        arrays[f"entering.{layer}"] = states.astype(mx.bfloat16)
    write_safetensors(path, arrays)


def _top(
    model: TargetModel, final: mx.array, mask: NDArray[np.uint8]
) -> tuple[NDArray[np.int32], NDArray[np.float16]]:
    """Return the most probable next tokens and their probabilities; zero outside answers."""
    tokens = np.zeros((len(mask), NUM_TOP_TOKENS), np.int32)
    probs = np.zeros((len(mask), NUM_TOP_TOKENS), np.float16)
    wanted = np.flatnonzero(mask[1:])
    if len(wanted):
        logits = model.logits(final[mx.array(wanted)]).astype(mx.float32)
        best, largest = top_tokens(logits, min(NUM_TOP_TOKENS, logits.shape[1]))
        share = mx.exp(largest - mx.logsumexp(logits, axis=-1, keepdims=True))
        count = best.shape[1]
        tokens[wanted, :count], probs[wanted, :count] = np.array(best), np.array(share)
    return tokens, probs


def _windows(model: TargetModel) -> set[int | None]:
    return set(model.config.layer_windows)


def _causal(length: int, window: int | None) -> mx.array | str:
    if window is None:
        return "causal"
    ages = mx.arange(length)[:, None] - mx.arange(length)[None]
    return (ages >= 0) & (ages < window)
