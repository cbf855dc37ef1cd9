"""Train an EAGLE-3 head: training-time test with a soft cross-entropy.

In a draft, the head's input is its own output instead of the target's states. Training does the
same for a few depths. At depth j, the state at position i is the head's output of depth j - 1 at
position i - 1. Attention sees the target's states up to position i - j, and the head's own states
after that (Li et al. 2025, https://arxiv.org/abs/2503.01840; harmonised context, Zhang et al.
2024, https://arxiv.org/abs/2408.15766). A second loss pulls the head's output to the target's final
state. Position i is the pair (states of token i, embedding of token i + 1) and predicts token
i + 2, whose distribution follows from the target's state at token i + 1.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, Self

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.device import exponential, products
from mlxspec.drafters.eagle.networks import Eagle3Network
from mlxspec.models import Model, TargetModel
from mlxspec.train.data.corpus import GREEDY
from mlxspec.train.features import Features
from mlxspec.train.methods.last_layer import final_norm, last_layer
from mlxspec.train.objective import Material, Objective, capture_layers, chain_matches
from mlxspec.train.reduced_head import reduced_head, soft_cross_entropy, target_probs

_Rows = tuple[mx.array, mx.array]  # keys and values of one depth, (1, Hkv, n, head_dim)
_OWN_NAMES = {"input_layernorm.weight": "hidden_norm.weight"}
_LAST_PROJECTIONS = (("self_attn", "o_proj"), ("mlp", "down_proj"))


class Eagle3Objective(Objective):
    """Trains a head for one target."""

    def __init__(
        self,
        model: TargetModel,
        target_ids: mx.array,  # (draft_vocab,) int32 tokens that can be drafted
        capture: Sequence[int],
        *,
        depths: int = 3,  # depths of training-time test, 1 or more
        decay: float = 0.8,  # weight of each depth relative to the one before
        state_weight: float = 0.2,  # weight of the squared distance to the target's own final state
    ) -> None:
        """Start the head as a copy of the target's last layer, whose input is almost the same.

        The states that enter the layers of `capture` are fused; the last should be near the top.
        """
        if depths < 1:
            raise ValueError(f"depths must be 1 or more; got {depths}")
        self.network = _from_last_layer(model, target_ids, tuple(capture))
        self._model, self._depths, self._decay = model, depths, decay
        self._state_weight = state_weight
        self._target_ids = target_ids
        self._head = reduced_head(model, target_ids)

    @classmethod
    def build(cls, material: Material, **options: Any) -> Self:
        capture = capture_layers(material.model.config.num_hidden_layers)
        shard = material.first_shard(capture)
        objective = cls(material.model, material.ids, capture, **options)
        if not isinstance(material.model, Model):
            longest = max(shard, key=lambda one: int((one.mask > 0).sum()))
            objective.drop_what_misleads(longest)
        return objective

    def drop_what_misleads(self, features: Features) -> None:
        """Zero the output of the copied attention, MLP or both if this lowers the loss.

        A copy from a model of mlx-lm can lack norms and scales, without which its output misleads.
        """
        lasts = [self.network.layer[part][name] for part, name in _LAST_PROJECTIONS]
        copied = [last.weight for last in lasts]

        def loss_with(shares: tuple[float, ...]) -> float:
            for last, weight, share in zip(lasts, copied, shares, strict=True):
                last.weight = share * weight
            return float(np.array(self.loss(features)))

        loss_with(min(product((1.0, 0.0), repeat=2), key=loss_with))

    def loss(self, features: Features) -> mx.array:
        predicted = np.flatnonzero(features.mask[2:])  # i predicts token i + 2, the assistant's
        if len(predicted) == 0:
            return mx.array(0.0)
        truth = features.final_at(predicted + 1)
        probs = target_probs(truth, self._head)
        scale = mx.square(truth).mean()  # makes the distance independent of the model's scale
        total, weight = mx.array(0.0), 1.0
        for depth, states in enumerate(self._unroll(features)):
            first = int(np.searchsorted(predicted, depth))  # _shift leaves zeros before `depth`
            rows = states[0][mx.array(predicted[first:])]
            distance = mx.square(rows - truth[first:]).mean(axis=-1).sum() / scale
            loss = soft_cross_entropy(rows, self._head, probs[first:])
            total = total + weight * (loss + self._state_weight * distance)
            weight *= self._decay
        return total

    def matches(self, features: Features) -> NDArray[np.bool_]:
        predicted, hits = np.flatnonzero(features.mask[2:] == GREEDY), []
        for states in self._unroll(features):
            logits = self._head.logits(states[0][mx.array(predicted)])
            drafted = self._target_ids[mx.argmax(logits, axis=-1)]
            hits.append(np.array(drafted) == features.tokens[predicted + 2])
        return chain_matches(predicted, hits)

    def _unroll(self, features: Features) -> list[mx.array]:
        """Return the inputs of the output head, (1, n - 1, D) for each depth."""
        layer = self.network.layer
        taps = [features.entering[index][:-1] for index in self.network.capture]
        g = self.network.fuse(mx.concatenate(taps, axis=-1).astype(mx.float32)[None])
        embeddings = self._model.embed(mx.array(features.tokens[1:]))[None].astype(mx.float32)
        outputs, rows = [], list[_Rows]()
        for _ in range(self._depths):
            both, residual = layer.inputs(embeddings, g)
            attended = _attend(layer.self_attn, both, rows)
            output = layer.finish(residual, attended)
            outputs.append(self.network.norm(output))
            g = _shift(output, 1)
        return outputs


def _attend(attention: Any, both: mx.array, rows: list[_Rows]) -> mx.array:
    """Attend from every position at one depth; append its keys and values to `rows`."""
    B, n, _ = both.shape
    H, Hkv = attention.n_heads, attention.n_kv_heads
    queries, keys, values = products.attention_heads(
        both, attention.q_proj, attention.k_proj, attention.v_proj, attention.head_dim
    )
    queries, keys = attention.rope(queries, keys, 0)
    rows.append((keys, values))
    depth = len(rows) - 1
    queries = (queries * attention.scale).reshape(B, Hkv, H // Hkv, n, -1)
    positions = mx.arange(n)
    seen = positions[:, None] - depth >= positions  # the target's states, up to i - depth
    first_keys, first_values = rows[0]
    scores = queries @ first_keys[:, :, None].swapaxes(-1, -2)
    parts = [mx.where(seen, scores, -mx.inf)]
    # the head's own states: one key for each depth, so a product row by row instead of a matrix
    own = [(_shift(k, depth - d), _shift(v, depth - d)) for d, (k, v) in enumerate(rows) if d]
    parts += [(queries * k[:, :, None]).sum(axis=-1, keepdims=True) for k, _ in own]
    joined = mx.concatenate(parts, axis=-1)
    weights = exponential.exp(joined - mx.stop_gradient(joined.max(axis=-1, keepdims=True)))
    mixed = weights[..., :n] @ first_values[:, :, None]
    for index, (_, v) in enumerate(own):
        mixed = mixed + weights[..., n + index : n + index + 1] * v[:, :, None]
    mixed = mixed / weights.sum(axis=-1, keepdims=True)
    attended: mx.array = attention.o_proj(
        mixed.reshape(B, H, n, -1).transpose(0, 2, 1, 3).reshape(B, n, -1)
    )
    return attended


def _shift(x: mx.array, places: int) -> mx.array:
    """Shift (..., n, D) rows to later positions; the first rows become zero."""
    if places == 0:
        return x
    zeros = mx.zeros((*x.shape[:-2], min(places, x.shape[-2]), x.shape[-1]), x.dtype)
    return mx.concatenate([zeros, x[..., :-places, :]], axis=-2)


def _from_last_layer(
    model: TargetModel, target_ids: mx.array, capture: tuple[int, ...]
) -> Eagle3Network:
    """Return a head whose layer computes what the target's last layer computes on the last tap."""
    last, config, D = last_layer(model), model.config, model.config.hidden_size
    settings = {
        "hidden_size": D,
        "intermediate_size": last.intermediate_size,
        "num_attention_heads": last.num_attention_heads,
        "num_key_value_heads": last.num_key_value_heads,
        "head_dim": last.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": getattr(config, "rope_scaling", None),
        "vocab_size": config.vocab_size,
        "attention_bias": "self_attn.q_proj.bias" in last.tensors,
        "target_hidden_size": D,
        "draft_vocab_size": target_ids.shape[0],
        "capture": list(capture),
    }
    network = Eagle3Network(settings, target_ids)
    tensors = {_OWN_NAMES.get(name, name): array for name, array in last.tensors.items()}
    for name in ("q_proj", "k_proj", "v_proj"):  # their inputs have an embedding in front
        weight = tensors.pop(path := f"self_attn.{name}.weight", None)
        if weight is not None:
            tensors[path] = mx.concatenate([mx.zeros_like(weight), weight], axis=1)
    network.layer.load_weights(list(tensors.items()), strict=False)
    for part, name in _LAST_PROJECTIONS:  # a part of another form adds nothing yet
        if f"{part}.{name}.weight" not in tensors:
            network.layer[part][name].weight = mx.zeros_like(network.layer[part][name].weight)
    identity = mx.zeros((D, D * (len(capture) - 1)))
    network.fc.weight = mx.concatenate([identity, mx.eye(D)], axis=1)
    network.norm.weight = final_norm(model)
    mx.eval(network.parameters())
    return network
