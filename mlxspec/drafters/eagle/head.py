"""A network of the EAGLE family, joined to the target whose hidden states it continues."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks
from mlxspec.models import ModelConfig, TargetModel

_LAYER_FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "vocab_size",
)


class Head:
    """A network that uses the target's embedding and output head where it has none.

    Attributes:
        capture: Layers of the target whose entering states are its input, besides the final norm's
            output.
        target_ids: (V_draft,) int32 target token of each of its tokens; None where they are equal.
    """

    def __init__(self, network: Any, model: TargetModel) -> None:
        self.capture: tuple[int, ...] = network.capture
        self.target_ids: mx.array | None = network.target_ids
        self._network, self._model = network, model
        self._rows = None  # of the target's head
        if "lm_head" not in network and self.target_ids is not None:
            self._rows = model.head_rows(self.target_ids)

    def features(self, states: HiddenStates) -> mx.array:
        """Return (L, F) features: the part of the states of L tokens that the drafter stores."""
        features: mx.array = self._network.features(states)
        return features

    def run(
        self,
        tokens: mx.array,
        features: mx.array,
        cache: Cache,
        positions: int | mx.array,
        masks: Masks,
    ) -> tuple[mx.array, mx.array]:
        """Run (L,) next tokens and (L, F) features; their rows are staged in `cache`.

        Returns (L, D) states for `logits`, and (L, F) predicted features, which replace those of
        the next token while drafting.
        """
        embeddings = self._embed(tokens).astype(self._network.dtype)[None]
        states, after = self._network(embeddings, features[None], cache, positions, masks)
        return states[0], after[0]

    def logits(self, states: mx.array) -> mx.array:
        """Return the (L, V_draft) logits of (L, D) states: the token after each pair.

        Logits beyond the target's vocabulary are dropped, since two heads may be padded
        differently.
        """
        if self._rows is not None:
            return self._rows(states)
        if "lm_head" not in self._network:
            return self._model.logits(states)
        logits: mx.array = self._network.lm_head(states)
        return logits if self.target_ids is not None else logits[:, : self._model.config.vocab_size]

    def _embed(self, tokens: mx.array) -> mx.array:
        if "embed_tokens" not in self._network:
            return self._model.embed(tokens)
        own = self._network.embed_tokens
        # The target may be padded to more tokens than its tokenizer has.
        embeddings: mx.array = own(mx.minimum(tokens, own.weight.shape[0] - 1))
        return embeddings


def layer_config(
    config: Mapping[str, Any], num_layers: int = 1, family: str = "llama"
) -> ModelConfig:
    """Return the config of a model of a family with the layers of a head."""
    settings = {name: config[name] for name in _LAYER_FIELDS if config.get(name) is not None}
    return ModelConfig.from_dict(
        {"model_type": family, "num_hidden_layers": num_layers, **settings}
    )
