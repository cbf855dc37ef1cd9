"""The kinds of trained drafters, and how the objective of each is built.

To add a kind, write its objective and a function that builds it, and enter both in `KINDS`.
`loading/` must load the file, and `drafting/registry.py` must make the drafter.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel
from mlxspec.models import Model
from mlxspec.train.features import Features, read_shard, shard_arrays
from mlxspec.train.methods.draft_model import DraftModelObjective
from mlxspec.train.methods.eagle3 import Eagle3Objective
from mlxspec.train.methods.early_exit import ExitObjective
from mlxspec.train.methods.medusa import MedusaObjective
from mlxspec.train.recipe import Recipe


@dataclass(frozen=True)
class Material:
    """The inputs from which an objective is built.

    Attributes:
        shards: One or more feature shards for training.
        counts: (V,) int64 number of times that the target wrote each token in them.
        target_ids: (n,) int32 tokens that can be drafted.
    """

    loaded: LoadedModel
    shards: Sequence[Path]
    counts: NDArray[np.int64]
    target_ids: NDArray[np.int32]


Options = Mapping[str, Any]
"""Settings of one kind of drafter, keyed by name."""


@dataclass(frozen=True)
class Kind:
    """How one kind of drafter is trained and written.

    Attributes:
        recipe: The default recipe.
        objective: The keyword arguments of this class are the options of a recipe.
        build: Returns the objective; missing options have their default values.
        bits: Bits of the matrices in the file.
        layer_bits: Bits of the layers of a draft model, which need more than its embedding.
    """

    recipe: Recipe
    objective: type[Any]
    build: Callable[[Material, Options], Any]
    bits: int = 8
    layer_bits: int = 8

    def option_types(self) -> dict[str, Any]:
        arguments = inspect.signature(self.objective).parameters.values()
        types = get_type_hints(self.objective.__init__)
        return {one.name: types[one.name] for one in arguments if one.kind is one.KEYWORD_ONLY}


def capture_layers(num_layers: int) -> tuple[int, ...]:
    """Return the layers whose entering states EAGLE-3 uses: low, middle and high.

    In a target of very few layers, some of these coincide and are returned once.
    """
    return tuple(sorted({min(2, num_layers - 1), num_layers // 2, max(num_layers - 3, 1)}))


def _eagle3(material: Material, options: Options) -> Eagle3Objective:
    capture = capture_layers(material.loaded.config.num_hidden_layers)
    _check_layers(material, capture)
    ids = mx.array(material.target_ids)
    objective = Eagle3Objective(material.loaded.model, ids, capture, **options)
    if not isinstance(material.loaded.model, Model):
        objective.drop_what_misleads(_longest(material))
    return objective


def _medusa(material: Material, options: Options) -> MedusaObjective:
    return MedusaObjective(material.loaded.model, mx.array(material.target_ids), **options)


def _exit(material: Material, options: Options) -> ExitObjective:
    layers = capture_layers(material.loaded.config.num_hidden_layers)
    options = {"layer": layers[len(layers) // 2], **options}
    _check_layers(material, [options["layer"]])
    ids = mx.array(material.target_ids)
    objective = ExitObjective(material.loaded.model, ids, **options)
    objective.fit_lens(read_shard(material.shards[0]))  # one shard has enough tokens, see there
    return objective


def _draft_model(material: Material, options: Options) -> DraftModelObjective:
    return DraftModelObjective(
        material.loaded.model, material.target_ids, material.counts, **options
    )


def _longest(material: Material) -> Features:
    """Return the conversation with the longest answers of the first shard."""
    return max(read_shard(material.shards[0]), key=lambda one: int((one.mask > 0).sum()))


def _check_layers(material: Material, layers: Sequence[int]) -> None:
    held = shard_arrays(material.shards[0])
    there = sorted(int(name.split(".")[1]) for name in held if name.startswith("entering."))
    missing = [layer for layer in layers if layer not in there]
    if missing:
        raise MlxspecError(
            f"{material.shards[0].parent} holds the states entering the layers "
            f"{', '.join(map(str, there)) or '(none)'}, not {missing[0]}: choose one of these, or "
            "make features with this target"
        )


KINDS: dict[str, Kind] = {
    "medusa": Kind(
        Recipe("medusa", tokens=1_000_000, batch_tokens=512, learning_rate=4e-3),
        MedusaObjective,
        _medusa,
    ),
    "eagle3": Kind(Recipe("eagle3", tokens=2_000_000), Eagle3Objective, _eagle3),
    "exit": Kind(Recipe("exit", tokens=300_000), ExitObjective, _exit),
    "draft-model": Kind(
        Recipe("draft-model", tokens=2_000_000, batch_tokens=2048, learning_rate=2e-3),
        DraftModelObjective,
        _draft_model,
        bits=4,
        layer_bits=6,
    ),
}
"""Keyed by the word for the kind on the command line of `mlxspec train`."""
