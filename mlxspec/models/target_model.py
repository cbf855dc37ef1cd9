"""The interface of a target model: the same for our own models, adapted ones and mocks.

Decoder, batch, drafters and engine know no model class and use only this interface. A model states
before a reply starts what it supports beyond plain decoding (`DraftSupport`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import mlx.core as mx
import mlx.nn as nn

from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.masks import Masks

DraftSupport = Literal["tree", "chain", "none"]
"""The drafts that a model can verify: trees and chains, chains only, or none (plain decoding)."""

CacheKind = Literal["rotating", "quantised"]
"""The kinds of cache over which a model can be inexact; all are exact over a plain, full cache."""

_UNSET: dict[CacheKind, str] = {"rotating": "max_kv_size", "quantised": "kv_bits"}

_WORDS: dict[DraftSupport, str] = {
    "tree": "draft trees",
    "chain": "draft chains",
    "none": "plain decoding",
}


def drafts_in_words(support: DraftSupport, limits: str = "") -> str:
    """Return the drafts that a model verifies, such as "draft chains (reason)".

    `limits` is the reason why it verifies no others, or "".
    """
    return f"{_WORDS[support]} ({limits})" if limits else _WORDS[support]


def check_cache(model: "TargetModel", kinds: Collection[CacheKind]) -> None:
    """Raise UnsupportedOperationError if a model is not exact over one of these kinds of cache."""
    for kind in kinds:
        if (reason := model.refused_caches.get(kind)) is not None:
            raise UnsupportedOperationError(
                f"this model would misread its text over a {kind} cache ({reason}): leave "
                f"{_UNSET[kind]} unset"
            )


class TargetConfig(Protocol):
    """Facts of a target model; `ModelConfig` has them too."""

    @property
    def vocab_size(self) -> int:
        """Width of the logits, V."""

    @property
    def hidden_size(self) -> int:
        """Width of the final hidden states, D."""

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""

    @property
    def shape_words(self) -> str:
        """The sizes on which the cost of a forward depends, as one line."""

    @property
    def intermediate_size(self) -> int:
        """Width inside an MLP; 0 if the model does not name it."""

    @property
    def num_attention_heads(self) -> int:
        """Number of query heads; 0 if the model does not name it."""

    @property
    def rms_norm_eps(self) -> float:
        """Epsilon of its norms, and of those of trained heads."""

    @property
    def rope_theta(self) -> float:
        """Base of its rotary frequencies, and of those of trained heads."""

    @property
    def num_row_stores(self) -> int:
        """Number of pairs of keys and values that a cache stores per token."""

    @property
    def row_windows(self) -> tuple[int | None, ...]:
        """Per pair of keys and values, the latest rows that a new row may see; None for all."""

    @property
    def num_states(self) -> int:
        """Number of recurrent states that a cache stores."""

    @property
    def head_dim(self) -> int:
        """Width of a key, for quantised keys."""

    @property
    def row_numbers(self) -> tuple[int, ...]:
        """Numbers in the keys and values of one token, per pair of them."""

    @property
    def kv_numbers(self) -> int:
        """Numbers in the keys and values of one token, in all layers."""

    @property
    def max_position_embeddings(self) -> int:
        """Context length of the model, in tokens."""

    @property
    def layer_windows(self) -> Sequence[int | None]:
        """The windows for which attention masks are made; None for the whole past."""

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a reply."""


class TargetModel(Protocol):
    """A network that reads tokens over a cache and returns hidden states, then logits."""

    @property
    def config(self) -> TargetConfig:
        """Facts of the model."""

    @property
    def draft_support(self) -> DraftSupport:
        """The drafts that the model can verify."""

    @property
    def supports_batches(self) -> bool:
        """Whether one forward can run several sequences of different lengths."""

    @property
    def draft_limits(self) -> str:
        """Why it can verify no other drafts; "" if it verifies all."""

    @property
    def refused_caches(self) -> Mapping[CacheKind, str]:
        """The kinds of cache over which it is not exact, with the reason of each."""

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The decoder layers, lowest first, in any form."""

    @property
    def dtype(self) -> mx.Dtype:
        """The floating-point type of its computations."""

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters."""

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings (..., D) of (...) int32 tokens."""

    def hidden_states(
        self,
        tokens: mx.array,
        cache: Any,
        positions: int | mx.array,
        masks: Masks,
        *,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        """Run all layers over (B, L) tokens; see `mlxspec.models.Model.hidden_states`."""

    def run_layers(
        self,
        x: mx.array,
        cache: Any,
        positions: int | mx.array,
        masks: Masks,
        layers: range,
        *,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        """Run consecutive layers over (B, L, D) states; see `mlxspec.models.Model.run_layers`.

        Raises:
            UnsupportedOperationError: The model only runs as a whole.
        """

    def norm(self, x: mx.array) -> mx.array:
        """Return the final norm (..., D) of the last layer's output.

        Raises:
            UnsupportedOperationError: The model only runs as a whole.
        """

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits (..., V) of final hidden states (..., D)."""

    def head_rows(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        """Return a map of final hidden states (..., D) to logits (..., n) of (n,) int32 tokens."""
