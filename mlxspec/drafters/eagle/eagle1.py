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
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxspec.device.ops import Linear
from mlxspec.drafters.eagle.base import EagleBase
from mlxspec.drafters.eagle.head import LAYER_FIELDS, Head
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.masks import Masks
from mlxspec.models import ModelConfig, TargetModel
from mlxspec.models.layers import DecoderLayer, StagingCache
from mlxspec.models.rope import Rope
from mlxspec.models.weights import load_weights


class EagleNetwork(nn.Module):
    """Joins embeddings and states, and runs the layers.

    Attributes:
        config: The normalised config from which it was built.
        fc: Linear layer from (..., 2 D) to (..., D).
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        optional: Collection[str] = (),
        target_ids: mx.array | None = None,
    ) -> None:
        """Build the network with random weights.

        `config` has hidden_size, intermediate_size, num_attention_heads, num_key_value_heads,
        head_dim, rms_norm_eps, rope_theta, rope_scaling, vocab_size, num_layers (1 by default), and
        draft_vocab_size if the head is its own and reduced. `target_ids` are then its target
        tokens. `optional` names the parameters that not every checkpoint has: the biases of `fc`
        and of the projections, `layers.0.input_layernorm.weight`, `embedding_layernorm.weight`,
        `pre_lm_head_layernorm.weight`, `embed_tokens.weight` and `lm_head.weight`.
        """
        super().__init__()
        self.config = dict(config)
        self._target_ids = target_ids
        layer = _layer_config(config, optional)
        D, eps = layer.hidden_size, layer.rms_norm_eps
        rope = Rope(layer.head_dim, layer.rope_theta, layer.rope_scaling)
        self.fc = Linear(2 * D, D, bias="fc.bias" in optional)
        self.layers = [DecoderLayer(layer, rope, i) for i in range(layer.num_hidden_layers)]
        if "layers.0.input_layernorm.weight" not in optional:
            self.layers[0]["input_layernorm"] = nn.Identity()
        for name in ("embedding_layernorm", "pre_lm_head_layernorm"):
            if f"{name}.weight" in optional:
                self[name] = nn.RMSNorm(D, eps=eps)
        if "embed_tokens.weight" in optional:
            self.embed_tokens = nn.Embedding(layer.vocab_size, D)
        if "lm_head.weight" in optional:
            self.lm_head = Linear(D, config.get("draft_vocab_size", layer.vocab_size), bias=False)

    @staticmethod
    def from_checkpoint(
        config: Mapping[str, Any], tensors: Mapping[str, mx.array], dtype: mx.Dtype | None = None
    ) -> "EagleNetwork":
        """Return the network of a checkpoint with normalised names, plain or quantised.

        `config` has `quantization` if tensors are quantised. `tensors` may have `target_ids`.
        `dtype` is the target's; None for the default of `load_weights`.

        Raises:
            UnsupportedModelError: Tensors are missing, unknown or of the wrong shape.
        """
        tensors = dict(tensors)
        target_ids = tensors.pop("target_ids", None)
        network = EagleNetwork(config, tensors.keys(), target_ids)
        load_weights(network, tensors, config.get("quantization"), dtype)
        return network

    @property
    def target_ids(self) -> mx.array | None:
        """(draft_vocab,) int32 target token of each draft token; None where they are equal."""
        return self._target_ids

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


class EagleHead(Head):
    """An EAGLE-1 or EAGLE-2 network, joined to its target: its input is the final norm's output."""

    def __init__(self, network: EagleNetwork, model: TargetModel) -> None:
        width = network.config["hidden_size"]
        if width != model.config.hidden_size:
            raise UnsupportedModelError(
                f"the EAGLE head was made for a target of hidden size {width}; this target's is "
                f"{model.config.hidden_size}: choose the head that was trained for it"
            )
        super().__init__(network, model, network.layers[0].post_attention_layernorm.weight.dtype)
        self.num_layers = len(network.layers)


class EagleDrafter(EagleBase):
    """Drafts with an EAGLE-1 or EAGLE-2 network."""

    name = "eagle"
    head_type = EagleHead


def _layer_config(config: Mapping[str, Any], optional: Collection[str]) -> ModelConfig:
    """Return the config of a model with these layers; the tensors decide which biases exist."""
    settings = {name: config[name] for name in LAYER_FIELDS if config.get(name) is not None}
    number = config.get("num_layers", 1)
    layer = ModelConfig.from_dict({"model_type": "llama", "num_hidden_layers": number, **settings})
    return replace(
        layer,
        attention_bias="layers.0.self_attn.q_proj.bias" in optional,
        output_bias="layers.0.self_attn.o_proj.bias" in optional,
        mlp_bias="layers.0.mlp.gate_proj.bias" in optional,
    )
