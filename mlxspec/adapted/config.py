"""What the engine asks of an adapted model, in place of a config of ours."""

from dataclasses import dataclass
from typing import Any

UNLIMITED = 2**31 - 1

_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
    "n_ctx",
    "seq_length",
    "max_context_length",
)


@dataclass(frozen=True)
class AdaptedConfig:
    """Facts of an adapted model.

    Attributes:
        model_type: mlx-lm's name of the type.
        vocab_size: Width of the logits, V.
        hidden_size: Width of the states that enter the head, D.
        num_hidden_layers: Number of layers.
        num_row_stores: Caches of keys and values.
        num_states: Recurrent states.
        head_dim: Width of a key, to be quantised; 0 where there is none.
        kv_numbers: Numbers in the keys and values of one token, in all layers.
        max_position_embeddings: Context length, in tokens.
        layer_windows: The windows for which masks are made.
        eos_token_ids: Tokens that end a reply.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_row_stores: int
    num_states: int
    head_dim: int
    kv_numbers: int
    max_position_embeddings: int
    layer_windows: tuple[int | None, ...]
    eos_token_ids: tuple[int, ...]


def context_length(args: Any) -> int:
    """Return the context length that a model's arguments name, or `UNLIMITED`."""
    for holder in (args, getattr(args, "text_config", None)):
        for name in _LENGTHS:
            value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return UNLIMITED
