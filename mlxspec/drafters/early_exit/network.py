"""The network of an early exit: from the middle of the target to its output head.

A linear lens says what the last layer would roughly make of a state in the middle (Belrose et al.
2023, https://arxiv.org/abs/2303.08112), and a few residual blocks like the target's own, attention
left out, improve on it. Every token is on its own, so nothing of an exit has to be rolled back.

    state entering a layer --> norm, fc --> block --> ... --> norm --> (rows of) the target's head
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxspec.device.kernels import silu
from mlxspec.device.products import Linear
from mlxspec.errors import UnsupportedModelError
from mlxspec.models.weights import load_weights
from mlxspec.params import check_threshold

DEFAULT_THRESHOLD = 0.6
"""With the exit in the middle a drafted token costs half a forward and saves a whole one."""


@dataclass(frozen=True)
class ExitConfig:
    """Sizes of an exit, and when it stops drafting.

    Attributes:
        layer: The layer whose entering state it reads: so many layers draft.
        hidden_size: Width of the target.
        intermediate_size: Width inside a block.
        num_blocks: Blocks before the final norm.
        threshold: Drafting stops when the largest probability falls below it; in (0, 1].
        rms_norm_eps: Of every norm.
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
        """Read the config of a head file; names that do not belong to it are ignored.

        Raises:
            UnsupportedModelError: A value is missing or impossible.
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
    """What stands between a layer of the target and its output head.

    Attributes:
        config: Its sizes.
        target_ids: (n,) int32 tokens that it can say; None for the whole vocabulary.
    """

    def __init__(self, config: ExitConfig, target_ids: mx.array | None = None) -> None:
        """Build the exit with random weights."""
        super().__init__()
        self.config = config
        self._target_ids = target_ids  # underlined: it is no parameter
        self.input_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.fc = Linear(config.hidden_size, config.hidden_size)
        self.blocks = [ExitBlock(config) for _ in range(config.num_blocks)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    @staticmethod
    def from_checkpoint(
        config: Mapping[str, Any], tensors: Mapping[str, mx.array], dtype: mx.Dtype | None = None
    ) -> "ExitHead":
        """Return the exit of a checkpoint, plain or quantised.

        Args:
            config: The fields of `ExitConfig`, and `quantization` as in MLX checkpoints.
            tensors: `input_norm.weight`, `fc.{weight,bias}`, `norm.weight`,
                `blocks.{j}.{norm,gate_proj,up_proj,down_proj}.weight` and, for a reduced
                vocabulary, `target_ids`.
            dtype: In which it computes, as the target does; None as `load_weights` has it.

        Raises:
            UnsupportedModelError: The config cannot be used, or tensors are missing, left over
                or misshapen.
        """
        weights = dict(tensors)
        head = ExitHead(ExitConfig.from_dict(config), weights.pop("target_ids", None))
        load_weights(head, weights, config.get("quantization"), dtype)
        return head

    @property
    def target_ids(self) -> mx.array | None:
        return self._target_ids

    def __call__(self, state: mx.array) -> mx.array:
        """Return what the target's head reads (..., D), of states (..., D) entering the layer."""
        x = self.fc(self.input_norm(state))
        for block in self.blocks:
            x = block(x)
        normed: mx.array = self.norm(x)
        return normed
