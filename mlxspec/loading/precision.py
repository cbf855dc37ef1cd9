"""Choose the floating-point type of a model so that no activation overflows.

A GPU computes in the type of the stored weights, float16 for a GGUF file. In some models, the first
tokens of a text give far larger numbers than it has (65,504); such models compute in bfloat16.
Others compute in float16 on M1 and M2 even if stored in bfloat16, which these chips convert.
"""

from collections.abc import Mapping, Sequence

import mlx.core as mx

from mlxspec.device import backend, chips
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import chain_masks
from mlxspec.models import Model, ModelConfig
from mlxspec.models.weights import embedding_dtype
from mlxspec.text.tokenizer import Tokenizer

_OVERFLOWS = ("qwen2",)  # families with models that are known to overflow
_SAFE = 2.0**14  # a quarter of the largest float16: other texts can reach more than the probe
_PROBE = "The answer to 12 * 7 is 84.\n\ndef f(x):\n    return 'yes'\n"
_MOST_TOKENS = 64


def dtype_for(asked: str, config: ModelConfig, tensors: Mapping[str, mx.array]) -> mx.Dtype | None:
    """Return the type in which to load a model; None to keep the stored types."""
    if asked != "auto":
        dtype: mx.Dtype = getattr(mx, asked)
        return dtype
    if not backend.keeps_weights_as_stored():
        return mx.float32
    stored = embedding_dtype(tensors)
    if stored == mx.float16 and config.model_type in _OVERFLOWS:
        return mx.bfloat16
    return stored


def fit_dtype(model: Model, tokenizer: Tokenizer) -> None:
    """Change a float16 model to bfloat16 if a probe comes close to the largest float16.

    If it does not, change a bfloat16 model to float16 on a chip that lacks bfloat16.
    """
    chip = chips.here()
    overflows = model.config.model_type in _OVERFLOWS
    is_slow = model.dtype == mx.bfloat16 and chip and not chip.has_bfloat16 and not overflows
    if model.dtype != mx.float16 and not is_slow:
        return
    tokens = [*model.config.eos_token_ids, *tokenizer.encode(_PROBE)]
    known = [token for token in tokens if token < model.config.vocab_size]
    dtype = mx.float16 if _is_safe(model, known[:_MOST_TOKENS] or [0]) else mx.bfloat16
    if dtype != model.dtype:
        model.set_dtype(dtype)
        mx.eval(model.parameters())


def _is_safe(model: Model, tokens: Sequence[int]) -> bool:
    """Return whether all states between the layers are far below the largest float16."""
    num_layers = model.config.num_hidden_layers
    cache = Cache.for_model(model.config)
    masks = chain_masks(cache, len(tokens), dict.fromkeys(model.config.layer_windows))
    _, states = model.hidden_states(
        mx.array([tokens], mx.int32), cache, 0, masks, capture=range(num_layers + 1)
    )
    are_small = [mx.all(mx.abs(state) <= _SAFE) for state in states]  # False for NaN
    return bool(mx.all(mx.stack(are_small)).item())
