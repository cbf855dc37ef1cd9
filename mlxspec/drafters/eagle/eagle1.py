"""EAGLE-1 and EAGLE-2: one decoder layer continues the target's final hidden states.

A linear layer joins the embedding of token t + 1 and the target's final-norm output at token t, in
this order. A decoder layer without a norm before its attention follows. Its output goes into the
target's output head without another norm (Li et al. 2024, https://arxiv.org/abs/2401.15077).
EAGLE-2 has the same weights and grows its tree by path probability (Li et al. 2024,
https://arxiv.org/abs/2406.16858). Some checkpoints add norms (HASS, Zhang et al. 2024,
https://arxiv.org/abs/2408.15766).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Self

import mlx.core as mx
from mlx import nn

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device.products import Linear
from mlxspec.drafters.eagle.base import EagleBase
from mlxspec.drafters.eagle.head import layer_config
from mlxspec.drafters.network import HeadNetwork
from mlxspec.kv.masks import Masks
from mlxspec.models.layers import DecoderLayer, StagingCache
from mlxspec.models.rope import Rope


class EagleNetwork(HeadNetwork):
    """Joins embeddings and states, and runs the layers.

    Attributes:
        config: The normalised config from which it was built.
        capture: Empty: its input is the final norm's output.
        num_layers: Layers with keys and values.
    """

    capture: tuple[int, ...] = ()

    def __init__(
        self,
        config: Mapping[str, Any],
        target_ids: mx.array | None = None,
        optional: Collection[str] = (),
    ) -> None:
        """Build the network with random weights.

        `config` has hidden_size, intermediate_size, num_attention_heads, num_key_value_heads,
        head_dim, rms_norm_eps, rope_theta, rope_scaling, vocab_size, num_layers (1 by default), and
        draft_vocab_size if the head is its own and reduced. `target_ids` are then its target
        tokens. `optional` names the parameters that not every checkpoint has: the biases of `fc`
        and of the projections, `layers.0.input_layernorm.weight`, `embedding_layernorm.weight`,
        `pre_lm_head_layernorm.weight`, `embed_tokens.weight` and `lm_head.weight`.
        """
        super().__init__(target_ids)
        self.config = dict(config)
        self.num_layers: int = config.get("num_layers", 1)
        layer = replace(
            layer_config(config, self.num_layers),
            attention_bias="layers.0.self_attn.q_proj.bias" in optional,
            output_bias="layers.0.self_attn.o_proj.bias" in optional,
            mlp_bias="layers.0.mlp.gate_proj.bias" in optional,
        )
        D, eps = layer.hidden_size, layer.rms_norm_eps
        rope = Rope(layer.head_dim, layer.rope_theta, layer.rope_scaling)
        self.fc = Linear(2 * D, D, bias="fc.bias" in optional)
        self.layers = [DecoderLayer(layer, rope, i) for i in range(self.num_layers)]
        if "layers.0.input_layernorm.weight" not in optional:
            self.layers[0]["input_layernorm"] = nn.Identity()
        for name in ("embedding_layernorm", "pre_lm_head_layernorm"):
            if f"{name}.weight" in optional or config.get("input_norm"):
                self[name] = nn.RMSNorm(D, eps=eps)
        if "embed_tokens.weight" in optional:
            self.embed_tokens = nn.Embedding(layer.vocab_size, D)
        if "lm_head.weight" in optional:
            self.lm_head = Linear(D, config.get("draft_vocab_size", layer.vocab_size), bias=False)

    @classmethod
    def of_shape(
        cls,
        config: Mapping[str, Any],
        tensors: Mapping[str, mx.array],
        target_ids: mx.array | None,
    ) -> Self:
        return cls(config, target_ids, tensors.keys())

    @property
    def dtype(self) -> mx.Dtype:
        return self.layers[0].post_attention_layernorm.weight.dtype

    def features(self, states: HiddenStates) -> mx.array:
        return states.final.astype(self.dtype)

    def __call__(
        self,
        embeddings: mx.array,
        hidden: mx.array,
        cache: StagingCache,
        positions: int | mx.array,
        masks: Masks,
    ) -> tuple[mx.array, mx.array]:
        """Run (B, L, D) embeddings of the next tokens and final hidden states.

        Returns the (B, L, D) input of the output head, twice: while drafting, it also replaces the
        target's hidden state of the next token, which does not exist yet.
        """
        if "embedding_layernorm" in self:
            embeddings = self.embedding_layernorm(embeddings)
        x = self.fc(mx.concatenate([embeddings, hidden], axis=-1))
        for layer in self.layers:
            x = layer(x, cache, positions, masks)
        if "pre_lm_head_layernorm" in self:
            x = self.pre_lm_head_layernorm(x)
        return x, x


class EagleDrafter(EagleBase):
    """Drafts with an EAGLE-1 or EAGLE-2 network."""

    name = "eagle"
