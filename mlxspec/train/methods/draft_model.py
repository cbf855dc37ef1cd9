"""Distil a draft model: a small Qwen2 model with the target's tokenizer.

Its embedding starts as the target's, projected on the principal directions of the frequent tokens,
whose rows alone are trained. The labels are the target's most probable next tokens with their
probabilities, which say more than one sampled token (DistillSpec, Zhou et al. 2023,
https://arxiv.org/abs/2310.08461).
"""

from collections.abc import Mapping
from typing import Any, Self

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from mlxspec.models import Model, ModelConfig, TargetModel, build_model
from mlxspec.train.data.corpus import GREEDY
from mlxspec.train.features import Features
from mlxspec.train.objective import LOOKAHEAD, Material, Objective, chain_matches, flat
from mlxspec.train.reduced_head import tied_cross_entropy


class _NoRows:
    """A cache that stores nothing: attention sees the rows of this forward alone."""

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values


class Student(nn.Module):
    """A model whose most frequent embedding rows (n, D) are trained apart from the others."""

    def __init__(self, model: Model, ids: NDArray[np.int32]) -> None:
        super().__init__()
        self.model = model
        self.model.model.embed_tokens.freeze()
        self.rows = model.model.embed_tokens.weight[mx.array(ids)]
        place = np.full(model.config.vocab_size, -1, np.int32)
        place[ids] = np.arange(len(ids), dtype=np.int32)
        self._ids, self._place = mx.array(ids), mx.array(place)

    def __call__(self, tokens: mx.array) -> mx.array:
        """Return the (n, D) inputs of the head after each of (n,) tokens."""
        row = self._place[tokens]
        own = self.rows[mx.maximum(row, 0)]
        x = mx.where((row >= 0)[:, None], own, self.model.embed(tokens))
        layers = range(self.model.config.num_hidden_layers)
        x, _ = self.model.run_layers(x[None], _NoRows(), 0, {None: "causal"}, layers)
        return self.model.norm(x)[0]

    def places(self, tokens: NDArray[np.int32]) -> mx.array:
        """Return the index of each token's trained row, -1 for a token without one."""
        return self._place[mx.array(tokens)]

    def merged(self) -> Model:
        """Return the model with the trained rows written into its embedding."""
        embedding = self.model.model.embed_tokens
        embedding.weight = embedding.weight.at[self._ids].add(
            self.rows - embedding.weight[self._ids]
        )
        return self.model


class DraftModelObjective(Objective):
    """Trains a student for one target, with its tokenizer and context length."""

    bits, layer_bits = 4, 6

    def __init__(
        self,
        target: TargetModel,  # its embedding is projected to the student's width
        ids: NDArray[np.int32],  # tokens whose rows are trained
        counts: NDArray[np.int64],  # (V,) how often each token occurs in the corpus
        *,
        hidden_size: int = 256,
        intermediate_size: int = 768,  # width inside the MLP
        num_layers: int = 4,  # number of layers
        head_dim: int = 64,  # size of the attention heads, which share one key/value head
    ) -> None:
        """Weights are not quantised unless `hidden_size` is a multiple of 64."""
        vocabulary = mx.arange(target.config.vocab_size)
        embedding = np.array(target.embed(vocabulary).astype(mx.float32))
        most = embedding.shape[1]
        if not 0 < hidden_size <= most or head_dim < 1 or hidden_size % head_dim:
            raise ValueError(
                f"a draft model of hidden_size {hidden_size} and head_dim {head_dim} cannot be "
                "made: hidden_size must be a multiple of head_dim, and "
                f"{most}, the target's, at most"
            )
        if min(num_layers, intermediate_size) < 1:
            raise ValueError(
                "num_layers and intermediate_size must be 1 or more; got "
                f"{num_layers} and {intermediate_size}"
            )
        self.config = {
            "model_type": "qwen2",
            "vocab_size": target.config.vocab_size,
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": hidden_size // head_dim,
            "num_key_value_heads": 1,
            "max_position_embeddings": target.config.max_position_embeddings,
            "rope_theta": target.config.rope_theta,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
            "eos_token_id": list(target.config.eos_token_ids),
        }
        model = build_model(ModelConfig.from_dict(self.config))
        model.model.embed_tokens.weight = mx.array(_projected(embedding, counts, hidden_size))
        mx.eval(model.parameters())
        self.network = Student(model, ids)

    @classmethod
    def build(cls, material: Material, **options: Any) -> Self:
        return cls(material.model, material.target_ids, material.counts, **options)

    def loss(self, features: Features) -> mx.array:
        rows = np.flatnonzero(features.mask[1:])
        if len(rows) == 0:
            return mx.array(0.0)
        hidden = self.network(mx.array(features.tokens[:-1]))[mx.array(rows)]
        trained = self.network.places(features.top_tokens[rows])
        probs = mx.array(features.top_probs[rows].astype(np.float32))
        return tied_cross_entropy(hidden, self.network.rows, trained, probs)

    def written(self, figures: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, mx.array]]:
        return dict(self.config), flat(self.network.merged().parameters())

    def matches(self, features: Features) -> NDArray[np.bool_]:
        rows = np.flatnonzero(features.mask[1:] == GREEDY)
        hidden = self.network(mx.array(features.tokens[:-1]))[mx.array(rows)]
        drafted = mx.argmax(hidden @ self.network.rows.T, axis=-1)
        hits = np.array(drafted == self.network.places(features.tokens[rows + 1]))
        return chain_matches(rows, [hits] * LOOKAHEAD)


def _projected(
    embedding: NDArray[np.float32], counts: NDArray[np.int64], size: int
) -> NDArray[np.float32]:
    """Return (V, size) coordinates along the principal directions of the frequent tokens."""
    weights = np.sqrt(counts + 1.0)[:, None]  # + 1: unseen tokens count a little
    _, directions = np.linalg.eigh((embedding * weights).T @ (embedding * weights))  # ascending
    return np.ascontiguousarray(embedding @ directions[:, ::-1][:, :size], dtype=np.float32)
