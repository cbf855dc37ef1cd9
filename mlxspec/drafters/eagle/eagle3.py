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

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device.ops import Linear
from mlxspec.drafters.eagle.base import EagleBase
from mlxspec.drafters.eagle.head import LAYER_FIELDS, Head
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.masks import Masks
from mlxspec.models import ModelConfig, TargetModel
from mlxspec.models.layers import MLP, Attention, StagingCache
from mlxspec.models.rope import Rope
from mlxspec.models.weights import load_weights

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


class Eagle3Network(nn.Module):
    """Fusion, layer and final norm; embedding and head if the checkpoint has its own.

    Attributes:
        config: The normalised config from which it was built.
        capture: Layers of the target whose entering states are fused, lowest first.
        target_ids: (draft_vocab,) int32 target token of each draft token; None where they are
            equal.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        target_ids: mx.array | None = None,
        *,
        has_embedding: bool = False,
        has_head: bool = False,
    ) -> None:
        """Build the network with random weights.

        `config` has hidden_size, target_hidden_size, intermediate_size, num_attention_heads,
        num_key_value_heads, head_dim, rms_norm_eps, rope_theta, rope_scaling, attention_bias,
        vocab_size, draft_vocab_size, capture, and the flags norm_before_residual, norm_before_fc,
        norm_output and fc_norm, false by default. `target_ids` are the target tokens of a reduced
        vocabulary. Without an embedding or head of its own, the network uses the target's.
        """
        super().__init__()
        self.config = dict(config)
        self.capture: tuple[int, ...] = tuple(config["capture"])
        self._target_ids = target_ids
        self._flags = {flag: bool(config.get(flag, False)) for flag in _FLAGS}
        layer = _layer_config(config)
        D, eps = layer.hidden_size, layer.rms_norm_eps
        fused = config["target_hidden_size"] * len(self.capture)
        self.fc = Linear(fused, D, bias=bool(config.get("fc_bias", False)))
        self.layer = Eagle3Layer(layer, norm_before_residual=self._flags["norm_before_residual"])
        self.norm = nn.RMSNorm(D, eps=eps)
        if self._flags["norm_before_fc"]:
            self.input_norm = nn.RMSNorm(fused, eps=eps)
        if self._flags["fc_norm"]:
            width = config["target_hidden_size"]
            self.fc_norm = [nn.RMSNorm(width, eps=eps) for _ in self.capture]
        if has_embedding:
            self.embed_tokens = nn.Embedding(config["vocab_size"], D)
        if has_head:
            self.lm_head = Linear(D, config["draft_vocab_size"], bias=False)

    @staticmethod
    def from_checkpoint(
        config: Mapping[str, Any], tensors: Mapping[str, mx.array], dtype: mx.Dtype | None = None
    ) -> "Eagle3Network":
        """Return the network of a checkpoint with normalised names, plain or quantised.

        `config` has `quantization` if tensors are quantised. `tensors` may have `target_ids`.
        `dtype` is the target's; None for the default of `load_weights`.

        Raises:
            UnsupportedModelError: Tensors are missing, unknown or of the wrong shape.
        """
        tensors = dict(tensors)
        network = Eagle3Network(
            config,
            tensors.pop("target_ids", None),
            has_embedding="embed_tokens.weight" in tensors,
            has_head="lm_head.weight" in tensors,
        )
        load_weights(network, tensors, config.get("quantization"), dtype)
        return network

    @property
    def target_ids(self) -> mx.array | None:
        return self._target_ids

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


class Eagle3Head(Head):
    """An EAGLE-3 network, joined to its target."""

    def __init__(self, network: Eagle3Network, model: TargetModel) -> None:
        _check(network, model)
        super().__init__(network, model, network.norm.weight.dtype)
        self.capture = network.capture

    def features(self, states: HiddenStates) -> mx.array:
        taps = mx.concatenate([states.entering[layer] for layer in self.capture], axis=-1)
        fused: mx.array = self._network.fuse(taps.astype(self._dtype))
        return fused


class Eagle3Drafter(EagleBase):
    """Drafts with an EAGLE-3 network."""

    name = "eagle3"
    head_type = Eagle3Head


def _check(network: Eagle3Network, model: TargetModel) -> None:
    config, target = network.config, model.config
    width = config["target_hidden_size"]
    is_joined = "embed_tokens" in network and "lm_head" in network
    if width != target.hidden_size or not (is_joined or config["hidden_size"] == width):
        raise UnsupportedModelError(
            f"the EAGLE-3 head was made for a target of hidden size {width} and has hidden size "
            f"{config['hidden_size']} itself; this target's hidden size is "
            f"{target.hidden_size}: choose the head that was trained for it"
        )
    if not all(0 <= layer <= target.num_hidden_layers for layer in network.capture):
        raise UnsupportedModelError(
            f"the EAGLE-3 head needs the states entering layers {list(network.capture)}; this "
            f"target has {target.num_hidden_layers} layers: choose the head trained for it"
        )


def _layer_config(config: Mapping[str, Any]) -> ModelConfig:
    settings = {name: config[name] for name in LAYER_FIELDS if config.get(name) is not None}
    has_bias = bool(config.get("attention_bias", False))  # on q, k and v, as in Qwen2
    family = "qwen2" if has_bias else "llama"
    return ModelConfig.from_dict({"model_type": family, "num_hidden_layers": 1, **settings})
