"""Tensor parallelism of our own models: every rank has some heads and a part of each MLP.

Outputs of projections into heads and the MLP are cut, and inputs of those back, each of which a sum
over all ranks follows (Megatron-LM, Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053). A part
is whole groups of heads that share a key, so ranks may have different numbers: 3 groups on 2 ranks
are 2 and 1. Embedding, norms and head are whole on every rank.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from mlxspec.errors import UnsupportedModelError
from mlxspec.models.layers import MLP, Attention
from mlxspec.models.model import Model


class SummedLinear(nn.Module):
    """A projection whose inputs are cut: it returns the sum over all ranks."""

    def __init__(self, part: nn.Module, group: mx.distributed.Group) -> None:
        super().__init__()
        self.part = part
        self._group = group
        if "bias" in part:  # added once, after the sum
            self.bias = part.pop("bias")

    def __call__(self, x: mx.array) -> mx.array:
        # Called by its name in the module, because measurements of slow links replace it there.
        summed = mx.distributed.all_sum(self.part(x), group=self._group)
        return summed + self.bias if "bias" in self else summed


def shard(model: Model, group: mx.distributed.Group) -> None:
    """Keep this rank's part of every layer; call it before the weights are evaluated."""
    config, size = model.config, group.size()
    groups = config.num_key_value_heads
    if size > groups:
        raise UnsupportedModelError(
            f"a model with {groups} groups of heads runs on {groups} ranks at most, not on {size}: "
            "start fewer processes"
        )
    for layer in model.layers:
        _shard_attention(layer.self_attn, group)
        _shard_mlp(layer.mlp, config.intermediate_size, group)


def share(total: int, rank: int, size: int) -> slice:
    """Return which of `total` equal units belong to a rank; lower ranks have the odd ones."""
    return slice(-(-rank * total // size), -(-(rank + 1) * total // size))


def _shard_attention(attention: Attention, group: mx.distributed.Group) -> None:
    per_group = attention.n_heads // attention.n_kv_heads
    part = share(attention.n_kv_heads, group.rank(), group.size())
    keys = _scaled(part, attention.head_dim)
    heads = _scaled(keys, per_group)
    _keep_outputs(attention.q_proj, heads)
    _keep_outputs(attention.k_proj, keys)
    _keep_outputs(attention.v_proj, keys)
    whole = attention.n_heads * attention.head_dim
    attention["o_proj"] = _summed(attention.o_proj, heads, whole, group)
    attention.n_kv_heads = part.stop - part.start
    attention.n_heads = attention.n_kv_heads * per_group


def _shard_mlp(mlp: MLP, inner: int, group: mx.distributed.Group) -> None:
    unit = math.gcd(inner, _block(mlp.down_proj))
    part = _scaled(share(inner // unit, group.rank(), group.size()), unit)
    _keep_outputs(mlp.gate_proj, part)
    _keep_outputs(mlp.up_proj, part)
    mlp["down_proj"] = _summed(mlp.down_proj, part, inner, group)


def _scaled(part: slice, factor: int) -> slice:
    return slice(part.start * factor, part.stop * factor)


def _block(layer: nn.Module) -> int:
    """Return how many inputs of a layer must stay together."""
    return int(layer.group_size) if isinstance(layer, nn.QuantizedLinear) else 1


def _keep_outputs(layer: nn.Module, rows: slice) -> None:
    for name in ("weight", "scales", "biases", "bias"):
        if name in layer:
            layer[name] = mx.contiguous(layer[name][rows])  # a view would keep the whole


def _summed(
    layer: nn.Module, inputs: slice, num_inputs: int, group: mx.distributed.Group
) -> SummedLinear:
    block = _block(layer)
    if inputs.start % block or inputs.stop % block:
        raise UnsupportedModelError(
            f"the heads of this model cannot be shared: {block} quantised weights of a row stay "
            "together; start another number of processes, or load a checkpoint that is not "
            "quantised"
        )
    for name in ("weight", "scales", "biases"):
        if name in layer:
            columns = layer[name].shape[1]
            first, last = (at * columns // num_inputs for at in (inputs.start, inputs.stop))
            layer[name] = mx.contiguous(layer[name][:, first:last])
    return SummedLinear(layer, group)
