"""What the arguments of an adapted model state, and what it is admitted for."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mlxspec.models import CacheKind, DraftSupport, drafts_in_words

UNLIMITED = 2**31 - 1

_LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"),
    *("model_max_length", "n_ctx", "seq_length", "max_context_length"),
)
_SIZES = (
    *("intermediate_size", "num_experts_per_tok", "moe_intermediate_size"),
    *("num_attention_heads", "num_key_value_heads", "attention_bias"),
)


@dataclass(frozen=True)
class Admission:
    """What a model of mlx-lm is admitted for, by an examination."""

    support: DraftSupport | None  # the drafts that it can verify; None if even its text differs
    reason: str  # why the model cannot verify more, for display; "" for trees
    error: float  # largest relative error of the supported drafts
    seconds: float  # time of the examination
    batches: bool = False  # whether a forward over several sequences is exact, too
    refused_caches: dict[CacheKind, str] = field(default_factory=dict)  # inexact ones, and why

    @property
    def words(self) -> str:
        """What it can verify, and why not more, for display."""
        if self.support is None:
            return f"no target ({self.reason})"
        words = drafts_in_words(self.support, self.reason)
        return "; ".join([words, *(f"no {kind} cache" for kind in self.refused_caches)])


def named_sizes(args: Any) -> dict[str, Any]:
    """Return the sizes that a model's arguments state, under the names of checkpoints."""
    found = {name: next(_numbers(args, name), None) for name in _SIZES}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def named_numbers(args: Any) -> dict[str, Any]:
    """Return the numbers that trained heads share, if a model's arguments state them."""
    names = ("rms_norm_eps", "rope_theta")
    stated = {name: next(_numbers(args, name), None) for name in names}
    return {name: float(value) for name, value in stated.items() if value is not None}


def context_length(args: Any) -> int:
    """Return the context length that a model's arguments state, or `UNLIMITED`."""
    lengths = (value for value in _numbers(args, *_LENGTHS) if isinstance(value, int) and value > 0)
    return next(lengths, UNLIMITED)


def _numbers(args: Any, *names: str) -> Iterator[float]:
    """Yield the numbers of some names in the arguments, then in those of the text model."""
    for holder in (args, getattr(args, "text_config", None)):
        for name in names:
            value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
            if isinstance(value, int | float):
                yield value
