"""Train a drafter of any kind: from feature shards to one file for `--drafter`."""

from collections.abc import Mapping
from dataclasses import asdict
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
from mlxspec.loading.heads.file import fingerprint, read_drafter_file, save_head
from mlxspec.loading.tensor_files import read_safetensors
from mlxspec.models.weights import unpacked
from mlxspec.train.features import shards_of_run, written_counts
from mlxspec.train.methods.draft_model import DraftModelObjective
from mlxspec.train.methods.eagle3 import Eagle3Objective
from mlxspec.train.methods.early_exit import ExitObjective
from mlxspec.train.methods.medusa import MedusaObjective
from mlxspec.train.objective import Material, Objective, flat
from mlxspec.train.recipe import Recipe, checked_options
from mlxspec.train.trainer import Progress, Report, train

KINDS: dict[str, type[Objective]] = {
    "medusa": MedusaObjective,
    "eagle3": Eagle3Objective,
    "exit": ExitObjective,
    "draft-model": DraftModelObjective,
}
"""By the word of `mlxspec train`; `loading/` reads the file, `drafting/` makes the drafter."""

GROUP_SIZE = 64
_BYTES_PER_TRAINED = 4 * 4  # float32: weight, gradient, and two moments of AdamW
_WORK_GB = 1.5  # logits of a conversation over a reduced head, and arrays of backpropagation


def memory_gb(loaded: LoadedModel, objective: Objective) -> float:
    """Return about how much memory training takes, the target included."""
    trained = sum(a.size for a in flat(objective.network.trainable_parameters()).values())
    return (loaded.model.nbytes + trained * _BYTES_PER_TRAINED) / backend.GB + _WORK_GB


def build_objective(loaded: LoadedModel, features: Path, recipe: Recipe, folder: Path) -> Objective:
    """Return the objective of a recipe, before the first step.

    The names of the shards that exist now are stored in the folder of the run, `folder`.
    """
    if recipe.kind not in KINDS:
        raise MlxspecError(f"cannot train {recipe.kind!r}; choose from {', '.join(KINDS)}")
    kind = KINDS[recipe.kind]
    options = checked_options(recipe, kind.option_types())
    shards = shards_of_run(features, folder)
    start, ids = _read_start(recipe, loaded) if recipe.start else ({}, None)
    mx.random.seed(recipe.seed)
    counts = np.sum([written_counts(path, loaded.config.vocab_size) for path in shards], axis=0)
    if not counts.any():
        raise MlxspecError(f"{features} holds no answers to learn from: make more features")
    if ids is None:
        ids = np.sort(np.argsort(-counts, kind="stable")[: recipe.draft_vocab_size])
    material = Material(loaded.model, shards, counts, ids.astype(np.int32))
    width = material.first_shard()[0].final.shape[-1]
    if width != loaded.config.hidden_size:
        raise MlxspecError(
            f"{shards[0]} holds states of {width} numbers, those of {loaded.name} have "
            f"{loaded.config.hidden_size}: make features with this target"
        )
    objective = kind.build(material, **options)
    if start:
        try:
            objective.network.load_weights(list(start.items()))
        except ValueError as error:
            raise MlxspecError(
                f"{recipe.start} was trained with other options than the recipe's ({error})"
            ) from error
    return objective


def _read_start(
    recipe: Recipe, loaded: LoadedModel
) -> tuple[dict[str, mx.array], NDArray[np.int32]]:
    """Return the weights that training starts from, and the tokens that they can draft."""
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
    ids = np.array(tensors.pop(names[0]))
    return unpacked(tensors, file.config["quantization"], mx.float32), ids


def train_head(
    loaded: LoadedModel,
    objective: Objective,
    features: Path,
    recipe: Recipe,
    folder: Path,
    out: Path,
    report: Report = lambda progress: None,
) -> Progress:
    """Train a drafter, or continue an interrupted run in `folder`, and write its file to `out`."""
    memory.peak_memory_gb(reset=True)
    progress = train(objective, features, recipe, folder, report)
    # the network has the best weights again, so the file gets the figures of that evaluation
    best = max(progress.curve, key=lambda figures: float(figures["mean_acceptance_length"]))
    config, tensors = objective.written(best)
    packed, quantization = pack(tensors, objective.bits, objective.layer_bits)
    facts = backend.facts()
    begun_with = read_drafter_file(Path(expanduser(recipe.start))) if recipe.start else None
    card = {  # no folder names
        "target": target_of(loaded),
        "recipe": asdict(recipe) | {"start": Path(recipe.start).name},
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
    save_head(out, recipe.kind, {**config, "quantization": quantization}, packed, card)
    return progress


def pack(
    tensors: Mapping[str, mx.array], bits: int, layer_bits: int
) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return quantised tensors, and the `quantization` entry for their config.

    A matrix whose rows divide into groups is quantised; other numbers are stored in bfloat16.
    Scales are float16, because with bfloat16 scales 8 bits are no better than 7. `layer_bits` are
    those of `model.layers`.
    """
    packed: dict[str, mx.array] = {}
    quantization: dict[str, Any] = {"group_size": GROUP_SIZE, "bits": bits}
    for name, array in tensors.items():
        path = name.removesuffix(".weight")
        if not mx.issubdtype(array.dtype, mx.floating):
            packed[name] = array
        elif array.ndim == 2 and name.endswith(".weight") and array.shape[1] % GROUP_SIZE == 0:
            own = layer_bits if name.startswith("model.layers.") else bits
            if own != bits:
                quantization[path] = {"group_size": GROUP_SIZE, "bits": own}
            parts = mx.quantize(array.astype(mx.float16), GROUP_SIZE, own)
            packed |= zip((name, f"{path}.scales", f"{path}.biases"), parts, strict=True)
        else:
            packed[name] = array.astype(mx.bfloat16)
    return packed, quantization


def target_of(loaded: LoadedModel) -> dict[str, str]:
    """Return the entries of a card that identify the target."""
    return {"name": loaded.name, "fingerprint": fingerprint(loaded.config, loaded.tokenizer)}
