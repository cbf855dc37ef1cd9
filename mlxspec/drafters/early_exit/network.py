"""The network of an early exit: from the middle of the target to its output head.

A linear layer approximates the last layer's output from a state in the middle (the tuned lens,
Belrose et al. 2023, https://arxiv.org/abs/2303.08112). A few residual blocks like the target's, but
without attention, improve it. Each token is computed alone, so an exit has no cache to roll back.

    state entering a layer --> norm, fc --> block --> ... --> norm --> (rows of) the target's head
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxspec.device.ops import Linear, silu
from mlxspec.errors import UnsupportedModelError
from mlxspec.models.weights import load_weights
from mlxspec.params import check_threshold

DEFAULT_THRESHOLD = 0.6
"""With the exit in the middle, a draft token costs half a forward and can save a whole one."""


@dataclass(frozen=True)
class ExitConfig:
    """Sizes of an exit, and its threshold.

    Attributes:
        layer: The layer whose entering state is its input: the layers below it draft.
        hidden_size: Hidden size of the target.
        intermediate_size: Width inside a block.
        num_blocks: Blocks before the final norm.
        threshold: Drafting stops when the largest probability is below it; in (0, 1].
    """

    layer: int
    hidden_size: int
    intermediate_size: int
    num_blocks: int = 1
    threshold: float = DEFAULT_THRESHOLD
    rms_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("layer", "hidden_size", "intermediate_size", "num_blocks"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} of an exit must be a whole number, 1 or more; got {size}")
        if not 0 < self.rms_norm_eps < math.inf:
            raise ValueError(f"rms_norm_eps must be a positive number; got {self.rms_norm_eps}")
        check_threshold(self.threshold)

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> "ExitConfig":
        """Return the config of a head file; unknown names are ignored.

        Raises:
            UnsupportedModelError: A value is missing or out of range.
        """
        known = {item.name for item in fields(ExitConfig)}
        try:
            return ExitConfig(**{name: config[name] for name in known & config.keys()})
        except (TypeError, ValueError) as error:
            raise UnsupportedModelError(f"the exit's config cannot be used: {error}") from error


class ExitBlock(nn.Module):
    """A residual SwiGLU block: x + down(silu(gate(norm(x))) * up(norm(x)))."""

    def __init__(self, config: ExitConfig) -> None:
        super().__init__()
        D, inner = config.hidden_size, config.intermediate_size
        self.norm = nn.RMSNorm(D, eps=config.rms_norm_eps)
        self.gate_proj = Linear(D, inner, bias=False)
        self.up_proj = Linear(D, inner, bias=False)
        self.down_proj = Linear(inner, D, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        normed = self.norm(x)
        output: mx.array = x + self.down_proj(silu(self.gate_proj(normed)) * self.up_proj(normed))
        return output


class ExitHead(nn.Module):
    """The exit: it maps a layer's input to the input of the target's output head.

    `target_ids` are the (n,) int32 tokens that it can propose; None for the whole vocabulary.
    """

    def __init__(self, config: ExitConfig, target_ids: mx.array | None = None) -> None:
        super().__init__()
        self.config = config
        self._target_ids = target_ids  # the underscore keeps it out of the parameters
        self.input_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.fc = Linear(config.hidden_size, config.hidden_size)
        self.blocks = [ExitBlock(config) for _ in range(config.num_blocks)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    @staticmethod
    def from_checkpoint(
        config: Mapping[str, Any], tensors: Mapping[str, mx.array], dtype: mx.Dtype | None = None
    ) -> "ExitHead":
        """Return the exit of a checkpoint, plain or quantised.

        `config` has the fields of `ExitConfig`, and `quantization` as in MLX checkpoints. `tensors`
        has `input_norm.weight`, `fc.{weight,bias}`, `norm.weight`,
        `blocks.{j}.{norm,gate_proj,up_proj,down_proj}.weight` and, for a reduced vocabulary,
        `target_ids`. `dtype` is the target's; None for the default of `load_weights`.

        Raises:
            UnsupportedModelError: The config cannot be used, or tensors are missing, unknown or
                of the wrong shape.
        """
        weights = dict(tensors)
        head = ExitHead(ExitConfig.from_dict(config), weights.pop("target_ids", None))
        load_weights(head, weights, config.get("quantization"), dtype)
        return head

    @property
    def target_ids(self) -> mx.array | None:
        return self._target_ids

    def __call__(self, state: mx.array) -> mx.array:
        """Return the head's input (..., D) for states (..., D) that enter the layer."""
        x = self.fc(self.input_norm(state))
        for block in self.blocks:
            x = block(x)
        normed: mx.array = self.norm(x)
        return normed
