"""A network of the EAGLE family, joined to the target whose hidden states it continues."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.errors import VocabularyMismatchError
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks
from mlxspec.models import TargetModel

LAYER_FIELDS = (
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
"""The fields that the config of a head shares with that of a model."""

Map = Callable[[mx.array], mx.array]


class Head:
    """A network that uses the target's embedding and output head where it has none.

    Attributes:
        capture: Layers of the target whose entering states are its input, besides the final norm's
            output.
        num_layers: Layers with keys and values.
        target_ids: (V_draft,) int32 target token of each of its tokens; None where they are equal.
    """

    capture: tuple[int, ...] = ()
    num_layers = 1

    def __init__(self, network: Any, model: TargetModel, dtype: mx.Dtype) -> None:
        self.target_ids: mx.array | None = network.target_ids
        _check_vocabulary(self.target_ids, model)
        self._network, self._dtype = network, dtype
        self._embed = _embedding_of(network, model)
        self._output = _output_of(network, self.target_ids, model)

    def features(self, states: HiddenStates) -> mx.array:
        """Return (L, F) features: the part of the states of L tokens that the drafter stores."""
        return states.final.astype(self._dtype)

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
        embeddings = self._embed(tokens).astype(self._dtype)[None]
        states, after = self._network(embeddings, features[None], cache, positions, masks)
        return states[0], after[0]

    def logits(self, states: mx.array) -> mx.array:
        """Return the (L, V_draft) logits of (L, D) states: the token after each pair."""
        return self._output(states)


def _embedding_of(network: nn.Module, model: TargetModel) -> Map:
    """Return a map of (n,) tokens to (n, D): the network's own embedding, else the target's."""
    if "embed_tokens" not in network:
        return model.embed
    last = network.embed_tokens.weight.shape[0] - 1
    # The target may be padded to more tokens than its tokenizer has.
    return lambda tokens: network.embed_tokens(mx.minimum(tokens, last))


def _output_of(network: nn.Module, target_ids: mx.array | None, model: TargetModel) -> Map:
    """Return a map of (n, D) to (n, V_draft) logits: the network's own head, else the target's.

    With `target_ids`, only these rows of the target's head are used. Logits beyond the target's
    vocabulary are dropped, since the two heads may be padded differently.
    """
    if target_ids is not None:
        return network.lm_head if "lm_head" in network else model.head_rows(target_ids)
    if "lm_head" in network:
        return lambda states: network.lm_head(states)[:, : model.config.vocab_size]
    return model.logits


def _check_vocabulary(target_ids: mx.array | None, model: TargetModel) -> None:
    """Raise `VocabularyMismatchError` if a reduced vocabulary does not fit the target."""
    if target_ids is None:
        return
    last, least, most = model.config.vocab_size - 1, int(target_ids.min()), int(target_ids.max())
    if least < 0 or most > last:
        raise VocabularyMismatchError(
            f"the head has tokens from {least} to {most}; those of the target are 0 to {last}: "
            "choose the head that was trained for this target"
        )
