"""The heads of Medusa: residual blocks over one state of the target, and an output layer each.

Head i is a few blocks x + SiLU(Wx + b), then its own output layer or the target's. Its input is the
final norm's output at token t, from which the target gives token t+1; it predicts token t+2+i (Cai
et al. 2024, https://arxiv.org/abs/2401.10774).
"""

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.device.ops import Linear, silu
from mlxspec.errors import UnsupportedModelError
from mlxspec.models.weights import load_weights


class MedusaHead(nn.Module):
    """Residual blocks and, unless it is tied, an output layer `out`."""

    def __init__(self, hidden_size: int, num_blocks: int, num_outputs: int | None, bias: bool):
        super().__init__()
        self.blocks = [Linear(hidden_size, hidden_size, bias) for _ in range(num_blocks)]
        if num_outputs is not None:
            self.out = Linear(hidden_size, num_outputs, bias=False)

    def __call__(self, hidden: mx.array) -> mx.array:
        """Return the input of the output layer, with the shape of `hidden`."""
        for block in self.blocks:
            hidden = hidden + silu(block(hidden))
        return hidden


class MedusaHeads(nn.Module):
    """Several heads over one state.

    Attributes:
        heads: The first one predicts the token after the next.
        target_ids: (V',) int32 target token of each output; None where they are equal.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        num_heads: int,
        num_blocks: int = 1,
        *,
        target_ids: mx.array | None = None,
        num_outputs: int | None = None,
        bias: bool = True,
    ) -> None:
        """Build heads with random weights.

        `config` has `hidden_size`, and `accuracies` per head and rank if they were measured.
        `target_ids` are the target tokens of a reduced vocabulary. `num_outputs` is the width of
        their own output layers; None to share the target's.
        """
        super().__init__()
        self.heads = [
            MedusaHead(config["hidden_size"], num_blocks, num_outputs, bias)
            for _ in range(num_heads)
        ]
        self._config = dict(config)
        self._target_ids = target_ids  # the underscore keeps it out of the parameters

    @staticmethod
    def from_checkpoint(
        config: Mapping[str, Any], tensors: Mapping[str, mx.array], dtype: mx.Dtype | None = None
    ) -> "MedusaHeads":
        """Return the heads of a checkpoint; its tensors define their number.

        `config` has `hidden_size`, and `quantization` if tensors are quantised. `tensors` has
        `heads.{i}.blocks.{j}.weight` and `.bias`, and may have `heads.{i}.out.weight` and
        `token_map`; quantised ones come with `.scales` and `.biases`. `dtype` is the target's; None
        for the default of `load_weights`.

        Raises:
            UnsupportedModelError: Tensors are missing, unknown or of the wrong shape, or
                `token_map` is empty or has a duplicate or a negative token.
        """
        weights = dict(tensors)
        token_map = weights.pop("token_map", None)
        num_heads = _count(weights, "heads.")
        if num_heads == 0:
            raise UnsupportedModelError("the checkpoint has no Medusa heads: heads.0 is missing")
        out = weights.get("heads.0.out.weight")
        num_outputs = None if out is None else out.shape[0]
        heads = MedusaHeads(
            config,
            num_heads,
            _count(weights, "heads.0.blocks."),
            target_ids=None if token_map is None else _checked(token_map, num_outputs),
            num_outputs=num_outputs,
            bias="heads.0.blocks.0.bias" in weights,
        )
        load_weights(heads, weights, config.get("quantization"), dtype)
        return heads

    @property
    def config(self) -> dict[str, Any]:
        return self._config

    @property
    def target_ids(self) -> mx.array | None:
        return self._target_ids

    @property
    def tensors(self) -> dict[str, mx.array]:
        """The parameters and `token_map`, by the names of `from_checkpoint`."""
        ids = {} if self._target_ids is None else {"token_map": self._target_ids}
        return dict(tree_flatten(self.parameters())) | ids

    @property
    def is_tied(self) -> bool:
        """Whether the heads share the target's output layer."""
        return "out" not in self.heads[0]

    def logits(self, hidden: mx.array, tied_head: Callable[[mx.array], mx.array]) -> mx.array:
        """Return (H, V') logits, one row per head, from the (1, D) final norm's output.

        `tied_head` is the target's output layer, limited to `target_ids`; tied heads use it.
        """
        states = [head(hidden) for head in self.heads]
        if self.is_tied:
            return tied_head(mx.concatenate(states))  # the large matrix is read once for all
        return mx.concatenate([head.out(x) for head, x in zip(self.heads, states, strict=True)])


def _count(tensors: Mapping[str, mx.array], prefix: str) -> int:
    numbers = {name[len(prefix) :].split(".")[0] for name in tensors if name.startswith(prefix)}
    return len(numbers)


def _checked(token_map: mx.array, num_outputs: int | None) -> mx.array:
    tokens = np.array(token_map)
    if num_outputs not in (None, len(tokens)):
        raise UnsupportedModelError(
            f"the token_map names {len(tokens)} tokens, but the heads have {num_outputs} outputs"
        )
    if len(tokens) == 0 or tokens.min() < 0 or len(np.unique(tokens)) < len(tokens):
        raise UnsupportedModelError(
            "the token_map must name different tokens, at least one and none negative"
        )
    return mx.array(tokens.astype(np.int32))
