"""The last layer of a target: the sizes and weights with which a head of one layer starts.

Attention and MLP are copied if they have Llama's names and fitting shapes; a layer of mlx-lm can
have any form. A part that is not copied has usual sizes and no weights here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlxspec.models import Model, TargetModel
from mlxspec.train.data.corpus import Conversation
from mlxspec.train.features import compute_features
from mlxspec.train.reduced_head import dense

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")
_NORMS = ("input_layernorm", "post_attention_layernorm")
_HEAD_DIM = 64
_PROBE_TOKENS = 64


@dataclass(frozen=True)
class LastLayer:
    """The sizes of a target's last layer, and its tensors."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    tensors: Mapping[str, mx.array]  # float32, by their names in a layer of Llama


def last_layer(model: TargetModel) -> LastLayer:
    """Return the sizes of a target's last layer, and the weights of its parts in Llama's form."""
    layer, D = model.layers[-1], model.config.hidden_size
    heads = model.config.num_attention_heads or getattr(layer.get("self_attn"), "n_heads", 0)
    attention = _weights(layer, "self_attn", _ATTENTION, biased=_ATTENTION[:3])
    head_dim = _head_dim(attention, D, heads)
    if not head_dim:
        attention, head_dim, heads = {}, _HEAD_DIM, -(-D // _HEAD_DIM)
    mlp = _weights(layer, "mlp", _MLP)
    if not _is_swiglu(mlp, D):
        mlp = {}
    keys, gate = attention.get("self_attn.k_proj.weight"), mlp.get("mlp.gate_proj.weight")
    return LastLayer(
        num_attention_heads=heads,
        num_key_value_heads=heads if keys is None else keys.shape[0] // head_dim,
        head_dim=head_dim,
        intermediate_size=inner_width(model) if gate is None else gate.shape[0],
        tensors=attention | mlp | _norms(layer, D),
    )


def inner_width(model: TargetModel) -> int:
    """Return the width inside an MLP: the target's, or the usual one if its config has none."""
    return model.config.intermediate_size or 4 * model.config.hidden_size


def final_norm(model: TargetModel) -> mx.array:
    """Return the (D,) float32 weight of the norm behind the last layer."""
    if isinstance(model, Model):
        return model.model.norm.weight.astype(mx.float32)
    # its name is not known: the least-squares ratio of output to input, exact for an RMS norm
    tokens = np.arange(min(_PROBE_TOKENS, model.config.vocab_size), dtype=np.int32)
    text = Conversation(tokens, np.zeros(len(tokens), np.uint8), is_heldout=False)
    end = model.config.num_hidden_layers
    features = compute_features(model, text, (end,))
    x, truth = (states.astype(mx.float32) for states in (features.entering[end], features.final))
    x = x * mx.rsqrt(mx.square(x).mean(axis=-1, keepdims=True) + model.config.rms_norm_eps)
    return (x * truth).sum(axis=0) / mx.maximum(mx.square(x).sum(axis=0), 1e-6)


def _weights(
    layer: nn.Module, part: str, names: tuple[str, ...], biased: tuple[str, ...] = ()
) -> dict[str, mx.array]:
    """Return the matrices of a part, with biases if all of `biased` have one; {} if one lacks."""
    module: Any = layer.get(part)
    linears = {name: module.get(name) if isinstance(module, dict) else None for name in names}
    if not all(isinstance(one, nn.Linear | nn.QuantizedLinear) for one in linears.values()):
        return {}
    weights = {f"{part}.{name}.weight": dense(linear) for name, linear in linears.items()}
    if biased and all("bias" in module[name] for name in biased):
        for name in biased:
            weights[f"{part}.{name}.bias"] = module[name].bias.astype(mx.float32)
    return weights


def _head_dim(attention: Mapping[str, mx.array], width: int, heads: int) -> int:
    """Return the size of a head, or 0 if the shapes are those of another attention."""
    shapes = [attention[name].shape for name in attention if name.endswith(".weight")]
    if not shapes or not heads:
        return 0
    queries, keys, values, output = shapes
    size = queries[0] // heads
    is_whole = queries == (heads * size, width) and output == (width, heads * size)
    if not is_whole or keys != values or keys[1] != width or size < 2 or size % 2:
        return 0
    groups = keys[0] // size
    return size if keys[0] == groups * size and groups and heads % groups == 0 else 0


def _is_swiglu(mlp: Mapping[str, mx.array], width: int) -> bool:
    shapes = [array.shape for array in mlp.values()]
    return bool(shapes) and shapes == [(n := shapes[0][0], width), (n, width), (width, n)]


def _norms(layer: nn.Module, width: int) -> dict[str, mx.array]:
    """Return the weights of the norms; other classes may use their weights in another way."""
    found = {name: layer.get(name) for name in _NORMS}
    return {
        f"{name}.weight": norm.weight.astype(mx.float32)
        for name, norm in found.items()
        if isinstance(norm, nn.RMSNorm) and norm.weight.shape == (width,)
    }
