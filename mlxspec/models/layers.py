"""The layers that Llama, Mistral and Qwen2 share: attention over a cache, SwiGLU, residuals.

The caller owns the cache, so a layer does not know whether it serves one token, a prompt or a draft
tree.
"""

from collections.abc import Mapping
from typing import Protocol

import mlx.core as mx
import mlx.nn as nn

from mlxspec.device.attention import Mask, Positions, attend
from mlxspec.device.packed import Rows
from mlxspec.device.products import Linear, attention_heads, swiglu
from mlxspec.models.config import ModelConfig
from mlxspec.models.rope import Rope


class StagingCache(Protocol):
    """The store of the keys and values of all layers."""

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[Rows, Rows]:
        """Take rotated (B, Hkv, L, D) rows of a layer; return all (B, Hkv, n, D) to be seen."""


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: ModelConfig, rope: Rope, layer: int):
        super().__init__()
        self.layer = layer
        self.n_heads, self.n_kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5 * rope.score_factor
        self.rope = rope
        D, bias = config.hidden_size, config.attention_bias
        q_size, kv_size = self.n_heads * config.head_dim, self.n_kv_heads * config.head_dim
        self.q_proj = Linear(D, q_size, bias=bias)
        self.k_proj = Linear(D, kv_size, bias=bias)
        self.v_proj = Linear(D, kv_size, bias=bias)
        self.o_proj = Linear(q_size, D, bias=config.output_bias)

    def __call__(
        self,
        x: mx.array,
        cache: StagingCache,
        positions: Positions,
        mask: Mask,
    ) -> mx.array:
        B, L, _ = x.shape
        queries, keys, values = attention_heads(
            x, self.q_proj, self.k_proj, self.v_proj, self.head_dim
        )
        queries, keys = self.rope(queries, keys, positions)
        all_keys, all_values = cache.stage(self.layer, keys, values)
        output = attend(queries, all_keys, all_values, scale=self.scale, mask=mask)
        return self.o_proj(output.transpose(0, 2, 1, 3).reshape(B, L, -1))


class MLP(nn.Module):
    """SwiGLU (Shazeer 2020, https://arxiv.org/abs/2002.05202)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        D, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = Linear(D, inner, bias=bias)
        self.up_proj = Linear(D, inner, bias=bias)
        self.down_proj = Linear(inner, D, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(swiglu(self.gate_proj, self.up_proj, x))


class DecoderLayer(nn.Module):
    """Attention and MLP, each normalised before and added to its input."""

    def __init__(self, config: ModelConfig, rope: Rope, layer: int):
        super().__init__()
        self.window = config.layer_windows[layer]  # latest tokens it sees; the key of its mask
        self.self_attn = Attention(config, rope, layer)
        self.mlp = MLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def __call__(
        self,
        x: mx.array,
        cache: StagingCache,
        positions: Positions,
        masks: Mapping[int | None, Mask],
    ) -> mx.array:
        mask = masks[self.window]
        x = x + self.self_attn(self.input_layernorm(x), cache, positions, mask)
        return x + self.mlp(self.post_attention_layernorm(x))
