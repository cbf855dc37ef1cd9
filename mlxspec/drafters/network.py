"""The network of a trained head, as a checkpoint describes it."""

from collections.abc import Mapping
from typing import Any, Self

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.models.weights import load_weights


class HeadNetwork(nn.Module):
    """The common part of the networks that draft from hidden states of a target.

    Attributes:
        ids_name: Name of the tensor of a checkpoint that holds `target_ids`.
    """

    ids_name = "target_ids"

    def __init__(self, target_ids: mx.array | None) -> None:
        super().__init__()
        self._target_ids = target_ids  # the underscore keeps it out of the parameters

    @classmethod
    def of_shape(
        cls,
        config: Mapping[str, Any],
        tensors: Mapping[str, mx.array],
        target_ids: mx.array | None,
    ) -> Self:
        """Return a network with random weights that has the parameters of a checkpoint."""
        raise NotImplementedError

    @classmethod
    def from_checkpoint(
        cls,
        config: Mapping[str, Any],
        tensors: Mapping[str, mx.array],
        dtype: mx.Dtype | None = None,
    ) -> Self:
        """Return the network of a checkpoint that `check_head` accepted, plain or quantised.

        `config` has `quantization` if tensors are quantised. `dtype` is the target's; None for the
        default of `load_weights`, which raises UnsupportedModelError for wrong tensors.
        """
        weights = dict(tensors)
        network = cls.of_shape(config, weights, weights.pop(cls.ids_name, None))
        load_weights(network, weights, config.get("quantization"), dtype)
        return network

    @property
    def target_ids(self) -> mx.array | None:
        """(V_draft,) int32 target token of each output; None where they are equal."""
        return self._target_ids

    @property
    def tensors(self) -> dict[str, mx.array]:
        """The tensors of a checkpoint, by name."""
        ids = {} if self._target_ids is None else {self.ids_name: self._target_ids}
        return dict(tree_flatten(self.parameters())) | ids
