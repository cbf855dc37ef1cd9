"""The network of a trained head, as a checkpoint describes it."""

from collections.abc import Collection, Mapping
from typing import Any, Self

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.file import HeadCheckpoint
from mlxspec.loading.heads.stored import token_ids
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields
from mlxspec.models.weights import load_weights

Config = Mapping[str, Any]
"""The numbers of a head by name."""


class HeadNetwork(nn.Module):
    """The common part of the networks that draft from hidden states of a target."""

    ids_name = "target_ids"  # the tensor of a checkpoint that holds them
    width_name = "hidden_size"  # the number of a config that is the width of the target

    def __init__(
        self, config: Config, target_ids: mx.array | None = None, optional: Collection[str] = ()
    ) -> None:
        """Build the network with random weights.

        `target_ids` are the target tokens of a reduced vocabulary. `optional` names the parameters
        that not every checkpoint has.
        """
        super().__init__()
        # Underscores keep them out of the parameters.
        self._config, self._target_ids = dict(config), target_ids

    @classmethod
    def of_shape(
        cls, config: Config, tensors: Mapping[str, mx.array], target_ids: mx.array | None
    ) -> Self:
        """Return a network with random weights that has the parameters of a checkpoint."""
        return cls(config, target_ids, tensors.keys())

    @classmethod
    def from_checkpoint(
        cls, config: Config, tensors: Mapping[str, mx.array], dtype: mx.Dtype | None = None
    ) -> Self:
        """Return the network of a checkpoint, plain or quantised; other tensors are ignored.

        `config` has `quantization` if tensors are quantised. `dtype` is the target's; None for the
        default of `load_weights`, which raises UnsupportedModelError for wrong tensors.
        """
        weights = dict(tensors)
        network = cls.of_shape(config, weights, weights.pop(cls.ids_name, None))
        paths = {name.rpartition(".")[0] for name in dict(tree_flatten(network.parameters()))}
        weights = {name: a for name, a in weights.items() if name.rpartition(".")[0] in paths}
        fault = "it was made for another target, its config is wrong, or it is incomplete"
        load_weights(network, weights, config.get("quantization"), dtype, fault=fault)
        return network

    @classmethod
    def of_head(cls, head: HeadCheckpoint, target: TargetConfig, dtype: mx.Dtype) -> Self:
        """Return the network of a head from a file, which can state anything.

        A head that was made for another target is an UnsupportedModelError.
        """
        # A null means what a missing number means: the checks and the networks have defaults.
        stated = {name: value for name, value in head.config.items() if value is not None}
        fields = Fields(stated, f"{head.place}, config")
        fields.section("quantization")
        if fields.integer(cls.width_name) != target.hidden_size:
            raise fields.refusal(cls.width_name, f"{target.hidden_size}, the width of the target")
        # Loops and tables of these lengths are made before the shapes of the tensors are compared.
        longest = max((size for array in head.tensors.values() for size in array.shape), default=0)
        for name in ("num_heads", "num_layers", "num_blocks"):
            fields.integer(name, 0, minimum=0, maximum=len(head.tensors))
        for name in ("hidden_size", "head_dim", "intermediate_size"):
            fields.integer(name, 1, maximum=max(1, longest))
        fields.number("rms_norm_eps", 1e-6)
        cls.check(fields, target)
        tensors, config = dict(head.tensors), stated | {"vocab_size": target.vocab_size}
        if cls.ids_name in tensors:
            what = f"{head.place}: {cls.ids_name!r}"
            tensors[cls.ids_name] = token_ids(tensors[cls.ids_name], what, target.vocab_size)
        try:
            return cls.from_checkpoint(config, tensors, dtype)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{head.place}: {error}") from error

    @classmethod
    def check(cls, fields: Fields, target: TargetConfig) -> None:
        """Refuse a config whose values no shape of a tensor confirms."""

    @property
    def config(self) -> dict[str, Any]:
        """The config from which it was built, normalised by `loading/heads/layouts.py`."""
        return self._config

    @property
    def target_ids(self) -> mx.array | None:
        """(V_draft,) int32 target token of each output; None where they are equal."""
        return self._target_ids

    @property
    def tensors(self) -> dict[str, mx.array]:
        ids = {} if self._target_ids is None else {self.ids_name: self._target_ids}
        return dict(tree_flatten(self.parameters())) | ids
