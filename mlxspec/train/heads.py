"""From feature shards to one file that `--drafter` takes: every kind of trained drafter.

To add a kind, write its objective, and name here what it is built from and what is written.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec import __version__, backend
from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel
from mlxspec.loading.fingerprint import fingerprint
from mlxspec.loading.head_file import save_head
from mlxspec.train.arrays import flat, read_arrays
from mlxspec.train.draft_model import DraftModelObjective
from mlxspec.train.eagle3 import Eagle3Objective
from mlxspec.train.early_exit import ExitObjective
from mlxspec.train.features import read_shard, shard_paths
from mlxspec.train.medusa import MedusaObjective
from mlxspec.train.packing import pack, unpack
from mlxspec.train.recipe import Recipe
from mlxspec.train.trainer import Objective, Progress, Report, train
from mlxspec.train.vocabulary import count_tokens, most_frequent

_BYTES_PER_TRAINED = 4 * 4  # float32: weight, gradient, and two moments of AdamW
_WORK_GB = 1.5  # logits of a conversation over a reduced head, and what backpropagation keeps

Written = tuple[dict[str, Any], dict[str, mx.array]]
"""Config and tensors of a trained drafter, by their normalised names."""


@dataclass(frozen=True)
class Kind:
    """How one kind of drafter is trained and written.

    Attributes:
        recipe: What it is trained with unless told otherwise.
        objective: Builds it for a target, from its feature shards and a recipe.
        written: Returns its config and tensors after training.
        bits: Of its matrices in the file.
        layer_bits: Of those in the layers of a draft model, whose embedding bears fewer.
    """

    recipe: Recipe
    objective: Callable[[LoadedModel, Sequence[Path], Recipe], Any]
    written: Callable[[Any, Mapping[str, Any]], Written]
    bits: int
    layer_bits: int = 8


def capture_layers(num_layers: int) -> tuple[int, ...]:
    """Return the layers whose entering states EAGLE-3 reads: low, middle and high.

    A target of very few layers has fewer of them.
    """
    return tuple(sorted({min(2, num_layers - 1), num_layers // 2, max(num_layers - 3, 1)}))


def _ids(loaded: LoadedModel, shards: Sequence[Path], recipe: Recipe) -> mx.array:
    if recipe.start:
        return _read_start(recipe)[1]
    counts = count_tokens(shards, loaded.config.vocab_size)
    return mx.array(most_frequent(counts, recipe.draft_vocab_size))


def _eagle3(loaded: LoadedModel, shards: Sequence[Path], recipe: Recipe) -> Eagle3Objective:
    capture = capture_layers(loaded.config.num_hidden_layers)
    return Eagle3Objective(loaded.model, _ids(loaded, shards, recipe), capture, **recipe.options)


def _medusa(loaded: LoadedModel, shards: Sequence[Path], recipe: Recipe) -> MedusaObjective:
    return MedusaObjective(loaded.model, _ids(loaded, shards, recipe), **recipe.options)


def _exit(loaded: LoadedModel, shards: Sequence[Path], recipe: Recipe) -> ExitObjective:
    layers = capture_layers(loaded.config.num_hidden_layers)
    options = {"layer": layers[len(layers) // 2], **recipe.options}
    objective = ExitObjective(loaded.model, _ids(loaded, shards, recipe), **options)
    if not recipe.start:
        objective.fit_lens(read_shard(shards[0]))
    return objective


def _draft_model(
    loaded: LoadedModel, shards: Sequence[Path], recipe: Recipe
) -> DraftModelObjective:
    counts = count_tokens(shards, loaded.config.vocab_size)
    ids = most_frequent(counts, recipe.draft_vocab_size)
    return DraftModelObjective(loaded.model, ids, counts, **recipe.options)


def _with_ids(network: Any, name: str) -> dict[str, mx.array]:
    return flat(network.parameters()) | {name: network.target_ids}


def _written_eagle3(objective: Eagle3Objective, figures: Mapping[str, Any]) -> Written:
    network = objective.network
    return network.config, _with_ids(network, "target_ids")


def _written_medusa(objective: MedusaObjective, figures: Mapping[str, Any]) -> Written:
    network = objective.network
    config = {**network.config, "accuracies": figures["accuracies"]}
    return config, _with_ids(network, "token_map")


def _written_exit(objective: ExitObjective, figures: Mapping[str, Any]) -> Written:
    network = objective.network
    return asdict(network.config), _with_ids(network, "target_ids")


def _written_draft_model(objective: DraftModelObjective, figures: Mapping[str, Any]) -> Written:
    return dict(objective.config), flat(objective.network.merged().parameters())


KINDS: dict[str, Kind] = {
    "medusa": Kind(Recipe("medusa", tokens=600_000), _medusa, _written_medusa, 8),
    "eagle3": Kind(Recipe("eagle3", tokens=700_000), _eagle3, _written_eagle3, 8),
    "exit": Kind(Recipe("exit", tokens=300_000), _exit, _written_exit, 8),
    "draft-model": Kind(
        Recipe("draft-model", tokens=2_000_000, batch_tokens=2048, learning_rate=2e-3),
        _draft_model,
        _written_draft_model,
        bits=4,
        layer_bits=6,
    ),
}


def memory_gb(loaded: LoadedModel, objective: Objective) -> float:
    """Return about how much memory training takes, in GB, the target's included."""
    trained = sum(a.size for a in flat(objective.network.trainable_parameters()).values())
    return (loaded.model.nbytes + trained * _BYTES_PER_TRAINED) / backend.GB + _WORK_GB


def build_objective(loaded: LoadedModel, features: Path, recipe: Recipe) -> Objective:
    """Return what a recipe trains, at its beginning.

    Raises:
        MlxspecError: The kind is not known, or there are no feature shards.
    """
    if recipe.kind not in KINDS:
        raise MlxspecError(f"cannot train {recipe.kind!r}; choose from {', '.join(KINDS)}")
    shards = shard_paths(features, "train")
    if not shards:
        raise MlxspecError(
            f"{features} holds no feature shards: make them with `mlxspec train features`"
        )
    mx.random.seed(recipe.seed)
    objective: Objective = KINDS[recipe.kind].objective(loaded, shards, recipe)
    if recipe.start:
        objective.network.load_weights(list(_read_start(recipe)[0].items()))
    return objective


def _read_start(recipe: Recipe) -> tuple[dict[str, mx.array], mx.array]:
    """Return the weights that a recipe begins with, and the tokens that they speak of."""
    tensors, metadata = read_arrays(Path(recipe.start))
    ids = [name for name in ("target_ids", "token_map") if name in tensors]
    if metadata.get("kind") != recipe.kind or not ids:
        raise MlxspecError(
            f"{recipe.start} is no file of the kind {recipe.kind!r} that training can go on with: "
            "give one that `mlxspec train` wrote for medusa, eagle3 or exit"
        )
    weights = unpack(tensors, json.loads(metadata["config"])["quantization"])
    return weights, weights.pop(ids[0])


def train_head(
    loaded: LoadedModel,
    objective: Objective,
    features: Path,
    recipe: Recipe,
    folder: Path,
    out: Path,
    report: Report = lambda progress: None,
) -> Progress:
    """Train a drafter, or go on with it, and write its file.

    Args:
        loaded: The target.
        objective: From `build_objective`; its network is changed.
        features: Folder of the target's feature shards.
        recipe: The numbers.
        folder: For checkpoints.
        out: The file to write.
        report: Told after every step.
    """
    backend.peak_memory_gb(reset=True)
    progress = train(objective, features, recipe, folder, report)
    kind = KINDS[recipe.kind]
    best = max(progress.curve, key=lambda look: float(look["mean_acceptance_length"]))
    config, tensors = kind.written(objective, best)
    layers = (name.removesuffix(".weight") for name in tensors if name.startswith("model.layers."))
    packed, quantization = pack(
        tensors, kind.bits, exceptions=dict.fromkeys(layers, kind.layer_bits)
    )
    card = card_of(loaded, recipe, progress)
    save_head(out, recipe.kind, {**config, "quantization": quantization}, packed, card)
    return progress


def card_of(loaded: LoadedModel, recipe: Recipe, progress: Progress) -> dict[str, Any]:
    """Return what should be known of a drafter that was just trained."""
    facts = backend.facts()
    return {
        "target": {
            "name": loaded.name,
            "fingerprint": fingerprint(loaded.config, loaded.tokenizer),
        },
        "recipe": recipe.as_dict(),
        "tokens_seen": progress.tokens,
        "epochs": progress.epoch,
        "seconds": round(progress.seconds, 1),
        "tokens_per_s": round(progress.tokens / max(progress.seconds, 1e-9), 1),
        "peak_memory_gb": round(backend.peak_memory_gb(), 2),
        "curve": progress.curve,
        "trained_on": f"{facts.device}, {facts.cores} cores, {facts.blas or facts.backend}",
        "versions": {"mlxspec": __version__, "mlx": facts.mlx},
    }
