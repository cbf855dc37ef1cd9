"""The sizes of a model that mlx-lm will load, from the headers of its files.

mlx-lm's code for the type decides which tensors it keeps. Tensors that no text model keeps are left
out and all others count, so the sizes are exact or slightly too large.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mlxspec.loading.sizes import StoredSizes
from mlxspec.models.weights import Quantization

_FLOATS = {"F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2)}
_EIGHT_BITS = ("F8_E4M3", "F8_E5M2")  # become bfloat16
_NOT_TEXT = frozenset(
    {
        "vision_tower",
        "vision_model",
        "visual",
        "multi_modal_projector",
        "audio_tower",
        "embed_vision",
        "embed_audio",
    }
)


def mlx_lm_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """Return the quantisation that a config states, by any method; mlx-lm checks it."""
    for name in ("quantization", "quantization_config"):
        found = config.get(name)
        if isinstance(found, dict):
            return found
    return None


def mlx_lm_sizes(
    stored: Mapping[str, tuple[str, int]],
    config: Mapping[str, Any],
    quantization: Quantization | None,
) -> StoredSizes:
    """Return the total sizes of the stored tensors, each given as name: (type, bytes)."""
    packed = floats = float_bytes = num_weights = 0
    dtypes: Counter[str] = Counter()
    for name, (dtype, n_bytes) in stored.items():
        if _is_left_out(name, config):
            continue
        path, _, kind = name.rpartition(".")
        is_packed = f"{path}.scales" in stored and kind not in ("scales", "biases", "bias")
        if is_packed:
            num_weights += 8 * n_bytes // _bits(path, quantization)
        elif kind.endswith("_blocks"):  # of gpt-oss, four bits each
            num_weights += 2 * n_bytes
        count, width = _as_floats(dtype, n_bytes)
        floats, float_bytes = floats + count, float_bytes + count * width
        packed += 0 if count else n_bytes
        dtypes[_FLOATS.get(dtype, ("", 0))[0]] += count
        if f"{path}.scales" not in stored or kind == "bias":
            num_weights += count
    dtype = max(dtypes, key=lambda word: dtypes[word], default="")
    return StoredSizes(packed, floats, float_bytes, dtype, num_weights)


def _as_floats(dtype: str, n_bytes: int) -> tuple[int, int]:
    """Return the number of floating-point numbers in a tensor, and the loaded bytes of each."""
    if dtype in _EIGHT_BITS:
        return n_bytes, 2
    size = _FLOATS.get(dtype, ("", 0))[1]
    return (n_bytes // size, size) if size else (0, 0)


def _bits(path: str, quantization: Quantization | None) -> int:
    settings = quantization or {}
    own = settings.get(path)
    bits = own.get("bits") if isinstance(own, Mapping) else settings.get("bits")
    return bits if isinstance(bits, int) and 1 <= bits <= 8 else 4


def _is_left_out(name: str, config: Mapping[str, Any]) -> bool:
    parts = name.split(".")
    is_head_of_tied = "lm_head" in parts and config.get("tie_word_embeddings") is True
    return is_head_of_tied or "inv_freq" in parts or not _NOT_TEXT.isdisjoint(parts)
