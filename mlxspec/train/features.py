"""Features: the target's states and probabilities along a corpus, computed once for all trainers.

Conversations are in random order, held-out ones first, so any number of shards is a fair sample.
One shard is one safetensors file: `tokens`, `offsets` and `assistant_mask` as in a corpus, then
`final` and `entering.<layer>` (N, D) bfloat16, `top_tokens` (N, 8) and `top_probs` (N, 8). Rows
of `top_*` are zero where the next token is not the assistant's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.decoder.forwards import Forwards
from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.loading.tensor_files import write_safetensors
from mlxspec.models import TargetModel
from mlxspec.train.data.corpus import Conversation, digest_of, read_texts, written_texts
from mlxspec.verify.distribution import top_tokens

NUM_TOP_TOKENS = 8
CONVERSATIONS_PER_SHARD = 64
_ROWS = ("tokens", "assistant_mask", "final", "top_tokens", "top_probs")
_ENTERING = "entering."


@dataclass(frozen=True)
class Features(Conversation):
    """One conversation with the target's states and probabilities."""

    final: mx.array  # (n, D) outputs of the final norm
    entering: dict[int, mx.array]  # per layer, the (n, D) states that enter it
    top_tokens: NDArray[np.int32]  # (n, 8) int32 most probable next tokens
    top_probs: NDArray[np.float16]  # (n, 8), zero where the next token is not the assistant's

    def final_at(self, places: NDArray[np.intp]) -> mx.array:
        """Return the (n, D) float32 outputs of the final norm at some positions."""
        return rows_at(self.final, places)


def rows_at(states: mx.array, places: NDArray[np.intp]) -> mx.array:
    """Return the (n, D) float32 rows of states at some positions."""
    rows: mx.array = states[mx.array(places.astype(np.int32))].astype(mx.float32)
    return rows


def compute_features(
    model: TargetModel, conversation: Conversation, layers: Sequence[int]
) -> Features:
    """Return the features of one conversation, with one forward."""
    forwards = Forwards(model, Cache.for_model(model.config))
    states = forwards.again(conversation.tokens.tolist(), layers)
    final, entering = states.final, dict(states.entering)
    if others := [state.shape for state in entering.values() if state.shape != final.shape]:
        raise UnsupportedOperationError(
            f"the layers of this model pass on states of the shape {others[0]}, and its head reads "
            f"{final.shape}; a trained head needs one vector a token at both places: train a "
            "table, which needs no features"
        )
    mx.eval(final, entering)
    top = _top(model, final, conversation.mask)
    return Features(
        conversation.tokens, conversation.mask, conversation.is_heldout, final, entering, *top
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
    include what is stored.
    """
    order = sorted(range(len(conversations)), key=lambda i: conversations[i].digest)
    shards: list[tuple[str, list[int]]] = []
    for kind in ("heldout", "train"):
        paths, done = shard_paths(folder, kind), set[bytes]()
        for path in paths:
            arrays, spans = _read_arrays(path)
            tokens = np.array(arrays["tokens"])
            done.update(digest_of(tokens[start:end]) for start, end in spans)
        waiting = [
            index
            for index in order
            if conversations[index].is_heldout == (kind == "heldout")
            and conversations[index].digest not in done
        ]
        first = 1 + max((int(path.stem.removeprefix(f"{kind}-")) for path in paths), default=-1)
        if kind == "heldout":
            waiting = waiting[: max(max_heldout - len(done), 0)]
        elif max_train_shards is not None:
            waiting = waiting[: max(max_train_shards - first, 0) * CONVERSATIONS_PER_SHARD]
        starts = range(0, len(waiting), CONVERSATIONS_PER_SHARD)
        shards += [
            (f"{kind}-{number:05d}", waiting[start : start + CONVERSATIONS_PER_SHARD])
            for number, start in enumerate(starts, first)
        ]
    return shards


def write_shards(
    model: TargetModel,
    conversations: Sequence[Conversation],
    shards: Sequence[tuple[str, list[int]]],
    folder: Path,
    layers: Sequence[int],
    on_progress: Callable[[int], None],
) -> None:
    """Compute shards (see `missing_shards`); write each to the folder as soon as it is complete.

    `on_progress` is called after every conversation with the number of its tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, members in shards:
        done: list[Features] = []
        for index in members:
            done.append(compute_features(model, conversations[index], layers))
            on_progress(len(conversations[index].tokens))
        arrays = written_texts(done)
        arrays["top_tokens"] = mx.array(np.concatenate([one.top_tokens for one in done]))
        arrays["top_probs"] = mx.array(np.concatenate([one.top_probs for one in done]))
        states = {"final": [one.final for one in done]}
        states |= {f"{_ENTERING}{layer}": [one.entering[layer] for one in done] for layer in layers}
        for key, parts in states.items():
            arrays[key] = mx.concatenate(parts).astype(mx.bfloat16)
        write_safetensors(folder / f"{name}.safetensors", arrays)


def shard_paths(folder: Path, kind: str) -> list[Path]:
    """Return the paths of the shards of the kind "train" or "heldout", in order."""
    return sorted(folder.glob(f"{kind}-*[0-9].safetensors"))


def shards_of_run(features: Path, folder: Path) -> list[Path]:
    """Return the training shards of a run: those that existed when it started.

    Later shards would change the order and the vocabulary of an interrupted run, so the run's
    folder stores the names.
    """
    shards = {shard.name: shard for shard in shard_paths(features, "train")}
    if not shards:
        raise MlxspecError(
            f"{features} holds no feature shards of training conversations: make them with "
            "`mlxspec train features`"
        )
    path = folder / "shards.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text("\n".join(shards), encoding="utf-8")
        names = path.read_text(encoding="utf-8").split()
    except OSError as error:
        raise MlxspecError(f"cannot write {path}: {error}") from error
    if missing := [name for name in names if name not in shards]:
        raise MlxspecError(
            f"the run in {folder} began with {missing[0]}, which is not among the features "
            "now: give the folder that it began with, or remove the run's to begin anew"
        )
    return [shards[name] for name in names]


def read_shard(path: Path) -> Iterator[Features]:
    """Yield the conversations of a shard."""
    arrays, spans = _read_arrays(path)
    host = {name: np.array(arrays[name]) for name in _ROWS if name != "final"}
    layers = [int(name.removeprefix(_ENTERING)) for name in arrays if name.startswith(_ENTERING)]
    for start, end in spans:
        yield Features(
            host["tokens"][start:end].astype(np.int32),
            host["assistant_mask"][start:end],
            path.name.startswith("heldout"),
            arrays["final"][start:end],
            {layer: arrays[f"{_ENTERING}{layer}"][start:end] for layer in layers},
            host["top_tokens"][start:end].astype(np.int32),
            host["top_probs"][start:end],
        )


def written_counts(path: Path, vocab_size: int) -> NDArray[np.int64]:
    """Return (V,) how often the assistant wrote each token in a shard."""
    arrays, _ = _read_arrays(path)
    counts = np.bincount(
        np.array(arrays["tokens"])[np.array(arrays["assistant_mask"]) > 0], minlength=vocab_size
    )
    if len(counts) > vocab_size:
        raise MlxspecError(
            f"{path} holds the token {len(counts) - 1}; the target's vocabulary ends at "
            f"{vocab_size - 1}: make features with this target"
        )
    return counts


def _read_arrays(path: Path) -> tuple[dict[str, mx.array], list[tuple[int, int]]]:
    arrays, spans = read_texts(path, _ROWS, "shard of features")
    lengths = {len(array) for name, array in arrays.items() if name.startswith(_ENTERING)}
    if lengths - {len(arrays["tokens"])}:
        raise MlxspecError(f"{path} is a damaged shard of features: make it again")
    return arrays, spans


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
