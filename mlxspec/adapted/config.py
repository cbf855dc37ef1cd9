"""The facts of an adapted model that the engine needs; they replace a config of ours."""

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
        num_row_stores: Caches of keys and values.
        num_states: Recurrent states.
        head_dim: Width of a key, needed to quantise it; 0 if there is none.
        kv_numbers: Numbers in the keys and values of one token, in all layers.
        max_position_embeddings: Context length, in tokens.
        layer_windows: The windows for which masks are made.
        intermediate_size: Width inside an MLP. This and the fields below, up to `rope_theta`, are 0
            if the model's arguments do not name them. The fingerprint consists of these fields.
        attention_bias: Whether the projections of the attention add a bias.
        rms_norm_eps: Epsilon of its norms; trained heads use it too.
        rope_theta: Base of its rotary frequencies; trained heads use it too.
        row_windows: Per cache of keys and values, the number of latest rows that it must keep, or
            None for all; () if the model is not built.
        row_numbers: Per cache of keys and values, the numbers of one token; their sum is
            `kv_numbers`.
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
    intermediate_size: int = 0
    num_attention_heads: int = 0
    num_key_value_heads: int = 0
    attention_bias: bool = False
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    row_windows: tuple[int | None, ...] = ()
    row_numbers: tuple[int, ...] = ()

    @property
    def shape_words(self) -> str:
        """The sizes that determine the cost of a forward, as one line."""
        return (
            f"{self.model_type}, {self.num_hidden_layers} layers of {self.hidden_size} and "
            f"{self.intermediate_size}, {self.kv_numbers} numbers a row, vocabulary "
            f"{self.vocab_size}"
        )


def named_sizes(args: Any) -> dict[str, Any]:
    """Return the sizes that a model's arguments state, under the names of checkpoints."""
    names = ("intermediate_size", "num_attention_heads", "num_key_value_heads", "attention_bias")
    found = {name: getattr(args, name, None) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def named_numbers(args: Any) -> dict[str, Any]:
    """Return the numbers that trained heads share, if a model's arguments state them."""
    found: dict[str, Any] = {}
    for holder in (getattr(args, "text_config", None), args):
        for name in ("rms_norm_eps", "rope_theta"):
            value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
            if isinstance(value, int | float):
                found[name] = float(value)
    return found


def context_length(args: Any) -> int:
    """Return the context length that a model's arguments state, or `UNLIMITED`."""
    for holder in (args, getattr(args, "text_config", None)):
        for name in _LENGTHS:
            value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return UNLIMITED
