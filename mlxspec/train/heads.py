"""Train a drafter of any kind: from feature shards to one file for `--drafter`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec import __version__
from mlxspec.device import backend, memory
from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel
from mlxspec.loading.heads.file import read_drafter_file, save_head
from mlxspec.loading.shipped import fingerprint
from mlxspec.loading.tensor_files import read_safetensors
from mlxspec.train.features import shard_arrays, shards_of_run
from mlxspec.train.kinds import KINDS, Material
from mlxspec.train.recipe import Recipe, checked_options
from mlxspec.train.trainer import Objective, Progress, Report, train
from mlxspec.train.weights import flat, pack, unpack

_BYTES_PER_TRAINED = 4 * 4  # float32: weight, gradient, and two moments of AdamW
_WORK_GB = 1.5  # logits of a conversation over a reduced head, and arrays of backpropagation


def memory_gb(loaded: LoadedModel, objective: Objective) -> float:
    """Return an estimate of the memory for training in GB, the target included."""
    trained = sum(a.size for a in flat(objective.network.trainable_parameters()).values())
    return (loaded.model.nbytes + trained * _BYTES_PER_TRAINED) / backend.GB + _WORK_GB


def build_objective(loaded: LoadedModel, features: Path, recipe: Recipe, folder: Path) -> Objective:
    """Return the objective of a recipe, before the first step.

    The names of the shards that exist now are stored in the folder of the run, `folder`.

    Raises:
        MlxspecError: The kind or an option is unknown, there are no feature shards of this
            target, or the recipe's start is for another kind or target.
        ValueError: An option is out of range.
    """
    if recipe.kind not in KINDS:
        raise MlxspecError(f"cannot train {recipe.kind!r}; choose from {', '.join(KINDS)}")
    kind = KINDS[recipe.kind]
    options = checked_options(recipe, kind.option_types())
    shards = shards_of_run(features, folder)
    if not shards:
        raise MlxspecError(
            f"{features} holds no feature shards: make them with `mlxspec train features`"
        )
    start = _read_start(recipe, loaded) if recipe.start else None
    mx.random.seed(recipe.seed)
    material = _material(loaded, shards, recipe, start)
    objective: Objective = kind.build(material, options)
    if start:
        try:
            objective.network.load_weights(list(start.weights.items()))
        except ValueError as error:
            raise MlxspecError(
                f"{recipe.start} was trained with other options than the recipe's ({error})"
            ) from error
    return objective


@dataclass(frozen=True)
class _Start:
    """The weights that training starts from, and the tokens that they can draft."""

    weights: dict[str, mx.array]
    target_ids: NDArray[np.int32]


def _material(
    loaded: LoadedModel, shards: Sequence[Path], recipe: Recipe, start: _Start | None
) -> Material:
    width = shard_arrays(shards[0])["final"].shape[-1]
    if width != loaded.config.hidden_size:
        raise MlxspecError(
            f"{shards[0]} holds states of {width} numbers, those of {loaded.name} have "
            f"{loaded.config.hidden_size}: make features with this target"
        )
    counts = _count_tokens(shards, loaded.config.vocab_size)
    if not counts.any():
        raise MlxspecError(f"{shards[0].parent} holds no answers to learn from: make more features")
    ids = start.target_ids if start else _most_frequent(counts, recipe.draft_vocab_size)
    return Material(loaded, shards, counts, ids)


def _count_tokens(shards: Iterable[Path], vocab_size: int) -> NDArray[np.int64]:
    """Return (V,) how often the assistant wrote each token in some feature shards."""
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


def _most_frequent(counts: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Return the (size,) int32 most frequent tokens, in ascending order."""
    return np.sort(np.argsort(-counts, kind="stable")[:size]).astype(np.int32)


def _read_start(recipe: Recipe, loaded: LoadedModel) -> _Start:
    path = Path(expanduser(recipe.start))
    file = read_drafter_file(path)
    tensors = read_safetensors(path)[0] if file else {}
    names = [name for name in ("target_ids", "token_map") if name in tensors]
    if file is None or file.kind != recipe.kind or not names or "quantization" not in file.config:
        raise MlxspecError(
            f"{recipe.start} is not a file of the kind {recipe.kind!r} that training can continue: "
            "give one that `mlxspec train` wrote for medusa, eagle3 or exit"
        )
    if file.target_fingerprint != fingerprint(loaded.config, loaded.tokenizer):
        raise MlxspecError(
            f"{recipe.start} was not trained for {loaded.name}: give a file that was, or none"
        )
    weights = unpack(tensors, file.config["quantization"])
    return _Start(weights, np.array(weights.pop(names[0])))


def train_head(
    loaded: LoadedModel,
    objective: Objective,
    features: Path,
    recipe: Recipe,
    folder: Path,
    out: Path,
    report: Report = lambda progress: None,
) -> Progress:
    """Train a drafter, or continue an interrupted run, and write its file.

    The network of the objective (see `build_objective`) changes. Checkpoints go to `folder`. Raises
    `MlxspecError` as `train` does, or if the file cannot be written.
    """
    memory.peak_memory_gb(reset=True)
    progress = train(objective, features, recipe, folder, report)
    kind = KINDS[recipe.kind]
    # the network has the best weights again, so the file gets the figures of that evaluation
    best = max(progress.curve, key=lambda figures: float(figures["mean_acceptance_length"]))
    config, tensors = objective.written(best)
    layers = (name.removesuffix(".weight") for name in tensors if name.startswith("model.layers."))
    packed, quantization = pack(
        tensors, kind.bits, exceptions=dict.fromkeys(layers, kind.layer_bits)
    )
    card = card_of(loaded, recipe, progress)
    save_head(out, recipe.kind, {**config, "quantization": quantization}, packed, card)
    return progress


def target_of(loaded: LoadedModel) -> dict[str, str]:
    """Return the entries of a card that identify the target."""
    return {"name": loaded.name, "fingerprint": fingerprint(loaded.config, loaded.tokenizer)}


def card_of(loaded: LoadedModel, recipe: Recipe, progress: Progress) -> dict[str, Any]:
    """Return the card of a drafter that was just trained; it contains no folder names."""
    facts = backend.facts()
    begun_with = read_drafter_file(Path(expanduser(recipe.start))) if recipe.start else None
    return {
        "target": target_of(loaded),
        "recipe": recipe.as_dict() | {"start": Path(recipe.start).name},
        "begun_with": begun_with.card if begun_with else None,
        "tokens_seen": progress.tokens,
        "epochs": progress.epoch,
        "seconds": round(progress.seconds, 1),
        "tokens_per_s": round(progress.tokens / max(progress.seconds, 1e-9), 1),
        "peak_memory_gb": round(memory.peak_memory_gb(), 2),
        "curve": progress.curve,
        "trained_on": f"{facts.device}, {facts.cores} cores, {facts.blas or facts.backend}",
        "versions": {"mlxspec": __version__, "mlx": facts.mlx},
    }
