r"""The networks of EAGLE: one small layer that continues hidden states of the target.

EAGLE-1 joins the embedding of token t + 1 and the target's final-norm output at token t, in this
order, with a linear layer. A decoder layer without a norm before its attention follows. Its output
goes into the target's output head without another norm (Li et al. 2024,
https://arxiv.org/abs/2401.15077). EAGLE-2 has the same weights and grows its tree by path
probability (Li et al. 2024, https://arxiv.org/abs/2406.16858). Some checkpoints add norms (HASS,
Zhang et al. 2024, https://arxiv.org/abs/2408.15766).

EAGLE-3 reads the states that enter a low, a middle and a high layer of the target. For each
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
from dataclasses import replace
from typing import Self

import mlx.core as mx
from mlx import nn

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device.products import Linear
from mlxspec.drafters.network import Config, HeadNetwork
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.masks import Masks
from mlxspec.loading.heads.stored import are_layers
from mlxspec.models import ModelConfig, TargetConfig
from mlxspec.models.fields import Fields
from mlxspec.models.layers import MLP, Attention, DecoderLayer, StagingCache
from mlxspec.models.rope import Rope

_LAYER_FIELDS = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "rms_norm_eps", "rope_theta", "rope_scaling", "vocab_size"),
)
_FLAGS = ("norm_before_residual", "norm_before_fc", "norm_output", "fc_norm")


class EagleBase(HeadNetwork):
    """The common part: an embedding and an output head, if the checkpoint has its own.

    Without these, the network uses the target's if that has its width.
    """

    name: str
    # Layers of the target whose entering states it reads besides the final norm's output.
    capture: tuple[int, ...]
    num_layers: int = 1  # layers with keys and values

    def __init__(
        self, config: Config, target_ids: mx.array | None = None, optional: Collection[str] = ()
    ) -> None:
        super().__init__(config, target_ids)
        D, vocab_size = config["hidden_size"], config["vocab_size"]
        is_other_width = config.get("target_hidden_size", D) != D
        if "embed_tokens.weight" in optional or is_other_width:
            self.embed_tokens = nn.Embedding(vocab_size, D)
        if "lm_head.weight" in optional or is_other_width:
            self.lm_head = Linear(D, config.get("draft_vocab_size", vocab_size), bias=False)

    def features(self, states: HiddenStates) -> mx.array:
        """Return (L, F) features: the part of the states of L tokens that the drafter stores."""
        raise NotImplementedError


class EagleNetwork(EagleBase):
    """EAGLE-1 and EAGLE-2: embeddings and final states joined, and decoder layers.

    The optional parameters are the biases of `fc` and of the projections, the norms
    `layers.0.input_layernorm`, `embedding_layernorm` and `pre_lm_head_layernorm`, and those of
    `EagleBase`.
    """

    name = "eagle"
    capture = ()

    def __init__(
        self, config: Config, target_ids: mx.array | None = None, optional: Collection[str] = ()
    ) -> None:
        super().__init__(config, target_ids, optional)
        self.num_layers = config.get("num_layers", 1)
        layer = replace(
            _layer_config(config, self.num_layers),
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


class Eagle3Network(EagleBase):
    """EAGLE-3: fusion, layer and final norm."""

    name = "eagle3"
    width_name = "target_hidden_size"

    def __init__(
        self, config: Config, target_ids: mx.array | None = None, optional: Collection[str] = ()
    ) -> None:
        super().__init__(config, target_ids, optional)
        width = config["target_hidden_size"]
        self.capture = tuple(config["capture"])
        self._flags = {flag: bool(config.get(flag, False)) for flag in _FLAGS}
        has_bias = bool(config.get("attention_bias", False))  # on q, k and v, as in Qwen2
        layer = _layer_config(config, family="qwen2" if has_bias else "llama")
        D, eps, fused = layer.hidden_size, layer.rms_norm_eps, width * len(self.capture)
        self.fc = Linear(fused, D, bias=bool(config.get("fc_bias", False)))
        self.layer = Eagle3Layer(layer, norm_before_residual=self._flags["norm_before_residual"])
        self.norm = nn.RMSNorm(D, eps=eps)
        if self._flags["norm_before_fc"]:
            self.input_norm = nn.RMSNorm(fused, eps=eps)
        if self._flags["fc_norm"]:
            self.fc_norm = [nn.RMSNorm(width, eps=eps) for _ in self.capture]

    @classmethod
    def of_shape(
        cls, config: Config, tensors: Mapping[str, mx.array], target_ids: mx.array | None
    ) -> Self:
        rows, num_ids = config["draft_vocab_size"], 0 if target_ids is None else target_ids.size
        if num_ids != (0 if rows == config["vocab_size"] else rows) and num_ids != rows:
            raise UnsupportedModelError(f"the checkpoint has {num_ids} target_ids, not {rows}")
        return super().of_shape(config, tensors, target_ids)

    @classmethod
    def check(cls, fields: Fields, target: TargetConfig) -> None:
        """Refuse layers that the target does not have, and ways to count them that differ."""
        capture, last = fields.get("capture"), target.num_hidden_layers
        if not are_layers(capture, last):
            raise fields.refusal("capture", f"layers 0 to {last} of the target")
        fields.integer("hidden_size")
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
        both, residual = self.layer.inputs(embeddings, g)
        attended = self.layer.self_attn(both, cache, positions, masks[None])
        output = self.layer.finish(residual, attended)
        normed = self.norm(output)
        return normed, normed if self._flags["norm_output"] else output


def _layer_config(config: Config, num_layers: int = 1, family: str = "llama") -> ModelConfig:
    settings = {name: config[name] for name in _LAYER_FIELDS if config.get(name) is not None}
    return ModelConfig.from_dict(
        {"model_type": family, "num_hidden_layers": num_layers, **settings}
    )
