r"""EAGLE-3: one small layer drafts from hidden states of three layers of the target.

The target's own forwards capture the states entering a low, a middle and a high layer. For each
position these are fused into one vector g. The input of the layer is [norm(embedding of the NEXT
token); norm(g)]. While drafting, its output before the final norm replaces g at the next position.
A reduced draft vocabulary makes the output head cheap (Li et al. 2025,
https://arxiv.org/abs/2503.01840).

    taps (n, 3 * D_target) --fc--> g (n, D)        embedding of token t+1 (n, D)
                                   \                /
             attention over [norm(embedding); norm(g)], + g or norm(g), MLP  --> out (n, D)
                                                         logits of token t+2 = head(norm(out))
"""

from collections.abc import Collection, Mapping
from typing import Any, Self

import mlx.core as mx
from mlx import nn

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device.products import Linear
from mlxspec.drafters.eagle.base import EagleBase
from mlxspec.drafters.eagle.head import layer_config
from mlxspec.drafters.network import HeadNetwork
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.masks import Masks
from mlxspec.loading.heads.stored import are_layers
from mlxspec.models import ModelConfig, TargetConfig
from mlxspec.models.fields import Fields
from mlxspec.models.layers import MLP, Attention, StagingCache
from mlxspec.models.rope import Rope

_FLAGS = ("norm_before_residual", "norm_before_fc", "norm_output", "fc_norm")


class Eagle3Layer(nn.Module):
    """A decoder layer whose attention takes the concatenation of an embedding and a state."""

    def __init__(self, config: ModelConfig, *, norm_before_residual: bool) -> None:
        super().__init__()
        D, eps = config.hidden_size, config.rms_norm_eps
        rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling)
        self.self_attn = Attention(config, rope, layer=0)
        for name in ("q_proj", "k_proj", "v_proj"):
            size = self.self_attn[name].weight.shape[0]
            self.self_attn[name] = Linear(2 * D, size, bias=config.attention_bias)
        self.mlp = MLP(config)
        self.input_layernorm = nn.RMSNorm(D, eps=eps)
        self.hidden_norm = nn.RMSNorm(D, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(D, eps=eps)
        self._norm_before_residual = norm_before_residual

    def inputs(self, embeddings: mx.array, g: mx.array) -> tuple[mx.array, mx.array]:
        """Return the input (..., 2 D) of the attention and the residual (..., D)."""
        normed = self.hidden_norm(g)
        both = mx.concatenate([self.input_layernorm(embeddings), normed], axis=-1)
        return both, normed if self._norm_before_residual else g

    def finish(self, residual: mx.array, attended: mx.array) -> mx.array:
        """Return the layer's output (..., D), given the residual and the attention's output."""
        x = residual + attended
        output: mx.array = x + self.mlp(self.post_attention_layernorm(x))
        return output

    def __call__(
        self,
        embeddings: mx.array,
        g: mx.array,
        cache: StagingCache,
        positions: int | mx.array,
        masks: Masks,
    ) -> mx.array:
        both, residual = self.inputs(embeddings, g)
        return self.finish(residual, self.self_attn(both, cache, positions, masks[None]))


class Eagle3Network(HeadNetwork):
    """Fusion, layer and final norm; embedding and head if the checkpoint has its own.

    Attributes:
        config: The normalised config from which it was built.
        capture: Layers of the target whose entering states are fused, lowest first.
    """

    num_layers = 1
    width_name = "target_hidden_size"

    def __init__(
        self,
        config: Mapping[str, Any],
        target_ids: mx.array | None = None,
        optional: Collection[str] = (),
    ) -> None:
        """Build the network with random weights.

        `config` has hidden_size, target_hidden_size, intermediate_size, num_attention_heads,
        num_key_value_heads, head_dim, rms_norm_eps, rope_theta, rope_scaling, attention_bias,
        vocab_size, draft_vocab_size, capture, and the flags norm_before_residual, norm_before_fc,
        norm_output and fc_norm, false by default. `target_ids` are the target tokens of a reduced
        vocabulary. Without `embed_tokens.weight` or `lm_head.weight` in `optional`, the network
        uses the target's if that has its width.
        """
        super().__init__(target_ids)
        width = config["target_hidden_size"]
        self.config = dict(config)
        self.capture: tuple[int, ...] = tuple(config["capture"])
        self._flags = {flag: bool(config.get(flag, False)) for flag in _FLAGS}
        has_bias = bool(config.get("attention_bias", False))  # on q, k and v, as in Qwen2
        layer = layer_config(config, family="qwen2" if has_bias else "llama")
        D, eps, fused = layer.hidden_size, layer.rms_norm_eps, width * len(self.capture)
        self.fc = Linear(fused, D, bias=bool(config.get("fc_bias", False)))
        self.layer = Eagle3Layer(layer, norm_before_residual=self._flags["norm_before_residual"])
        self.norm = nn.RMSNorm(D, eps=eps)
        if self._flags["norm_before_fc"]:
            self.input_norm = nn.RMSNorm(fused, eps=eps)
        if self._flags["fc_norm"]:
            self.fc_norm = [nn.RMSNorm(width, eps=eps) for _ in self.capture]
        if "embed_tokens.weight" in optional or width != D:
            self.embed_tokens = nn.Embedding(config["vocab_size"], D)
        if "lm_head.weight" in optional or width != D:
            self.lm_head = Linear(D, config["draft_vocab_size"], bias=False)

    @classmethod
    def of_shape(
        cls,
        config: Mapping[str, Any],
        tensors: Mapping[str, mx.array],
        target_ids: mx.array | None,
    ) -> Self:
        rows, num_ids = config["draft_vocab_size"], 0 if target_ids is None else target_ids.size
        if num_ids != (0 if rows == config["vocab_size"] else rows) and num_ids != rows:
            raise UnsupportedModelError(f"the checkpoint has {num_ids} target_ids, not {rows}")
        return cls(config, target_ids, tensors.keys())

    @classmethod
    def check(cls, fields: Fields, target: TargetConfig) -> None:
        """Refuse layers that the target does not have, and ways to count them that differ."""
        capture, last = fields.get("capture"), target.num_hidden_layers
        if not are_layers(capture, last):
            raise fields.refusal("capture", f"layers 0 to {last} of the target")
        fields.integer("draft_vocab_size")
        ways = fields.get("capture_alternatives") or []
        if not isinstance(ways, list) or not all(
            are_layers(way, last) and len(way) == len(capture) for way in ways
        ):
            raise fields.refusal("capture_alternatives", "lists of layers, as many as in 'capture'")

    @property
    def dtype(self) -> mx.Dtype:
        return self.norm.weight.dtype

    def features(self, states: HiddenStates) -> mx.array:
        taps = mx.concatenate([states.entering[layer] for layer in self.capture], axis=-1)
        return self.fuse(taps.astype(self.dtype))

    def fuse(self, taps: mx.array) -> mx.array:
        """Return g (..., D) of (..., len(capture) * D_target) concatenated captured states."""
        if self._flags["norm_before_fc"]:
            taps = self.input_norm(taps)
        if self._flags["fc_norm"]:
            parts = mx.split(taps, len(self.capture), axis=-1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            taps = mx.concatenate(normed, axis=-1)
        g: mx.array = self.fc(taps)
        return g

    def __call__(
        self,
        embeddings: mx.array,
        g: mx.array,
        cache: StagingCache,
        positions: int | mx.array,
        masks: Masks,
    ) -> tuple[mx.array, mx.array]:
        """Run the layer over (B, L, D) embeddings of the next tokens and states.

        Returns the input of the output head and the replacement of g at the next position, both
        (B, L, D).
        """
        output = self.layer(embeddings, g, cache, positions, masks)
        normed = self.norm(output)
        return normed, normed if self._flags["norm_output"] else output


class Eagle3Drafter(EagleBase):
    """Drafts with an EAGLE-3 network."""

    name = "eagle3"
