"""The interface of a target model: the same for our own models, adapted ones and mocks."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import mlx.core as mx
import mlx.nn as nn

from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.masks import Masks

# The drafts that a model can verify: trees and chains, chains only, or none (plain decoding).
DraftSupport = Literal["tree", "chain", "none"]
# The kinds of cache over which a model can be inexact; all are exact over a plain, full cache.
CacheKind = Literal["rotating", "quantised"]
_UNSET: dict[CacheKind, str] = {"rotating": "max_kv_size", "quantised": "kv_bits"}

_WORDS: dict[DraftSupport, str] = {
    "tree": "draft trees",
    "chain": "draft chains",
    "none": "plain decoding",
}


def drafts_in_words(support: DraftSupport, limits: str = "") -> str:
    """Return the drafts that a model verifies, and `limits`, why no others, for display."""
    return f"{_WORDS[support]} ({limits})" if limits else _WORDS[support]


def check_cache(model: "TargetModel", kinds: Collection[CacheKind]) -> None:
    """Raise UnsupportedOperationError if a model is not exact over one of these kinds of cache."""
    for kind in kinds:
        if (reason := model.refused_caches.get(kind)) is not None:
            raise UnsupportedOperationError(
                f"this model would misread its text over a {kind} cache ({reason}): leave "
                f"{_UNSET[kind]} unset"
            )


@dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """Facts of a target model; sizes with a default are 0 if mlx-lm's model does not name them."""

    model_type: str
    vocab_size: int  # width of the logits, V
    hidden_size: int  # width of the states that enter the head, D
    num_hidden_layers: int
    head_dim: int  # width of a key, needed to quantise it; need not be hidden_size / heads
    max_position_embeddings: int  # context length, in tokens
    # The windows for which attention masks are made, in our own models one per layer: the latest
    # tokens that a token attends to (itself included), None for all.
    layer_windows: tuple[int | None, ...]
    eos_token_ids: tuple[int, ...]  # tokens that end a reply
    intermediate_size: int = 0  # width inside an MLP
    num_experts_per_tok: int = 0  # MLPs that compute a token, of those of a mixture
    moe_intermediate_size: int = 0  # width inside one of these; 0 if it is that of an MLP
    num_attention_heads: int = 0
    num_key_value_heads: int = 0  # a divisor of the query heads
    attention_bias: bool = False  # of the query, key and value projections
    rms_norm_eps: float = 1e-5  # trained heads use it too
    rope_theta: float = 10_000.0  # base of the rotary frequencies; trained heads use it too
    num_states: int = 0  # recurrent states that a cache stores
    # Per pair of keys and values: the latest rows that a cache must keep, None for all; and the
    # numbers in those of one token.
    row_windows: tuple[int | None, ...] = ()
    row_numbers: tuple[int, ...] = ()

    @property
    def shape_words(self) -> str:
        """The sizes on which the cost of a forward depends, as one line."""
        return (
            f"{self.model_type}, {self.num_hidden_layers} layers of {self.hidden_size} and "
            f"{self.intermediate_size}, {self.num_attention_heads} heads of {self.head_dim}, "
            f"{self.kv_numbers} numbers a row, vocabulary {self.vocab_size}"
        )

    @property
    def num_row_stores(self) -> int:
        """Pairs of keys and values that a cache stores per token."""
        return len(self.row_numbers)

    @property
    def kv_numbers(self) -> int:
        """Numbers in the keys and values of one token, in all layers."""
        return sum(self.row_numbers)


class TargetModel(Protocol):
    """A network that reads tokens over a cache and returns hidden states, then logits."""

    draft_support: DraftSupport  # the drafts that it can verify
    supports_batches: bool  # one forward can run several sequences of different lengths
    draft_limits: str  # why it can verify no other drafts, for display
    refused_caches: Mapping[CacheKind, str]  # over which it is not exact, and why, for display

    @property
    def config(self) -> TargetConfig:
        """Facts of the model."""

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
        """Run consecutive layers over states, or raise, as `norm`, if it only runs as a whole."""

    def norm(self, x: mx.array) -> mx.array:
        """Return the final norm (..., D) of the last layer's output."""

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits (..., V) of final hidden states (..., D)."""

    def head_rows(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        """Return a map of final hidden states (..., D) to logits (..., n) of (n,) int32 tokens."""
