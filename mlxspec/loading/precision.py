"""In which floating-point type a model computes: wide enough for what runs through its layers.

On a CPU that is float32, which is fastest there. A GPU computes in the type that the weights, or
their scales, are stored in; of a GGUF file that is float16, whose numbers end at 65,504. The first
tokens of a text make some models add up far larger ones in the residual stream, and an infinity
there turns into no number at all. Those compute in bfloat16, which is as large and less exact.
"""

from collections.abc import Mapping, Sequence

import mlx.core as mx

from mlxspec.device import backend
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import chain_masks
from mlxspec.models import Model, ModelConfig
from mlxspec.models.weights import embedding_dtype
from mlxspec.tokenizer import Tokenizer

_OVERFLOWS = ("qwen2",)  # families of which some members are known to
_SAFE = 2.0**14  # a quarter of the largest float16: other texts may reach more than the probe
_PROBE = "The answer to 12 * 7 is 84.\n\ndef f(x):\n    return 'yes'\n"
_MOST_TOKENS = 64


def dtype_for(asked: str, config: ModelConfig, tensors: Mapping[str, mx.array]) -> mx.Dtype | None:
    """Return the type that a model is to be loaded in; None to leave the tensors as they are.

    Args:
        asked: "float16", "bfloat16", "float32", or "auto" to choose here.
        config: The model's.
        tensors: Of its checkpoint.
    """
    if asked != "auto":
        dtype: mx.Dtype = getattr(mx, asked)
        return dtype
    if not backend.keeps_weights_as_stored():
        return mx.float32
    stored = embedding_dtype(tensors)
    if stored == mx.float16 and config.model_type in _OVERFLOWS:
        return mx.bfloat16
    return stored


def widen(model: Model, tokenizer: Tokenizer) -> None:
    """Let a float16 model compute in bfloat16 where a probe comes near the end of float16."""
    if model.dtype == mx.float16 and not _is_safe(model, _probe_tokens(model.config, tokenizer)):
        model.set_dtype(mx.bfloat16)
        mx.eval(model.parameters())


def _probe_tokens(config: ModelConfig, tokenizer: Tokenizer) -> list[int]:
    tokens = [*config.eos_token_ids, *tokenizer.encode(_PROBE)]
    known = [token for token in tokens if token < config.vocab_size]
    return known[:_MOST_TOKENS] or [0]


def _is_safe(model: Model, tokens: Sequence[int]) -> bool:
    """Say whether all numbers between the layers are far from the end of float16."""
    num_layers = model.config.num_hidden_layers
    cache = Cache(num_layers)
    masks = chain_masks(cache, len(tokens), dict.fromkeys(model.config.layer_windows))
    _, states = model.hidden_states(
        mx.array([tokens], mx.int32), cache, 0, masks, capture=range(num_layers + 1)
    )
    are_small = [mx.all(mx.abs(state) <= _SAFE) for state in states]  # no number is small
    return bool(mx.all(mx.stack(are_small)).item())
