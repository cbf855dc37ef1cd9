"""Load a checkpoint's tensors into a model, after a check of each.

Quantised weights stay quantised, or are unpacked if the device multiplies faster that way. All
floating-point tensors, scales included, get one type, so that nothing is promoted later.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.device import backend
from mlxspec.errors import UnsupportedModelError

Quantization = Mapping[str, Any]
"""`group_size`, `bits` and `mode` of an MLX checkpoint. A module with other values has its own
mapping under its path; False there means that the module is not quantised."""

_NAMED = 4  # names in a message; the rest is counted
_EMBEDDING = "model.embed_tokens."


def load_weights(
    model: nn.Module,
    tensors: Mapping[str, mx.array],
    quantization: Quantization | None = None,
    dtype: mx.Dtype | None = None,
    cut: Callable[[], None] = lambda: None,
    fault: str = "it is not of the family that its config.json states, or it is incomplete",
) -> str:
    """Load a checkpoint's tensors into a model, in place; return the name of their stored type.

    Tables of rotary frequencies are ignored, and so is `lm_head` if the model's head is tied to the
    embedding. Other tensors than those of the model are an UnsupportedModelError, whose message
    ends with `fault`. `dtype` None means float32 on a CPU, and on a GPU the stored type of the
    embedding. `cut` is called while the weights are lazy: parts it removes are never in memory.
    """
    wanted = dict(tree_flatten(model.parameters()))
    is_tied = not any(name.startswith("lm_head.") for name in wanted)
    kept = {
        name: array
        for name, array in tensors.items()
        if not name.endswith("rotary_emb.inv_freq")
        and not (is_tied and name.startswith("lm_head."))
    }
    stored = _stored_words(kept, quantization)
    if dtype is None:
        dtype = embedding_dtype(kept) if backend.keeps_weights_as_stored() else mx.float32
    weights = unpacked(kept, quantization, dtype)
    _check_names(wanted, weights, fault)  # still lazy; only a CPU computes these
    if quantization is not None and backend.keeps_weights_as_stored():
        quantize(model, kept, quantization)
        weights = {name: _in_dtype(array, dtype) for name, array in kept.items()}
        _check_names(dict(tree_flatten(model.parameters())), weights, fault)
    model.load_weights(list(weights.items()))
    cut()
    mx.eval(model.parameters())
    return stored


def unpacked(
    tensors: Mapping[str, mx.array], quantization: Quantization | None, dtype: mx.Dtype | None
) -> dict[str, mx.array]:
    """Return tensors of which none is quantised, in one type; None keeps those of plain ones."""
    weights: dict[str, mx.array] = {}
    quantized = set(_triples(tensors))
    for name, array in tensors.items():
        path, _, kind = name.rpartition(".")
        if path not in quantized or kind == "bias":
            weights[name] = _in_dtype(array, dtype)
        elif kind == "weight":
            weight = _dequantize(path, tensors, _settings(quantization, path))
            weights[name] = _in_dtype(weight, dtype)
    return weights


def words_of_loaded(stored: str, dtype: str = "auto") -> str:
    """Return the name of a loaded model's weight type, given the stored and the requested one."""
    if dtype == "auto" and backend.keeps_weights_as_stored():
        return stored
    dtype = "float32" if dtype == "auto" else dtype
    if dtype == stored:
        return stored
    is_packed = stored.endswith("-bit") and backend.keeps_weights_as_stored()
    return f"{stored} in {dtype}" if is_packed else f"{dtype} from {stored}"


def embedding_dtype(tensors: Mapping[str, mx.array]) -> mx.Dtype | None:
    """Return the stored floating-point type of a checkpoint's embedding or its scales, or None."""
    scales = tensors.get(f"{_EMBEDDING}scales", tensors.get(f"{_EMBEDDING}weight"))
    return scales.dtype if scales is not None and _is_float(scales) else None  # not of mxfp4


def _triples(tensors: Mapping[str, mx.array]) -> list[str]:
    """Return the paths of quantised modules; `_check_names` refuses scales without a weight."""
    paths = [name.removesuffix(".scales") for name in tensors if name.endswith(".scales")]
    return [path for path in paths if f"{path}.weight" in tensors]


def _settings(quantization: Quantization | None, path: str) -> dict[str, Any]:
    if quantization is None:
        raise UnsupportedModelError(
            f"the checkpoint holds {path}.scales, but its config.json has no 'quantization'"
        )
    own = quantization.get(path)
    chosen = own if isinstance(own, Mapping) else quantization
    names = ("group_size", "bits", "mode")
    return {name: chosen[name] for name in names if name in chosen}


def _stored_words(tensors: Mapping[str, mx.array], quantization: Quantization | None) -> str:
    sizes: Counter[str] = Counter()
    for path in _triples(tensors):
        settings = _settings(quantization, path)
        words = packed_words(settings.get("bits", 4), settings.get("mode"))
        sizes[words] += tensors[f"{path}.weight"].nbytes
    return max(sizes, key=lambda key: sizes[key], default="") or stored_type(tensors)


def packed_words(bits: int, mode: object = None) -> str:
    """Return the type of quantised weights for display, such as "4-bit" or "mxfp4 4-bit"."""
    return f"{bits}-bit" if mode in (None, "affine") else f"{mode} {bits}-bit"


def stored_type(tensors: Mapping[str, mx.array]) -> str:
    """Return the type of most numbers, such as "bfloat16"."""
    sizes: Counter[str] = Counter()
    for array in tensors.values():
        sizes[str(array.dtype).removeprefix("mlx.core.")] += array.nbytes
    return max(sizes, key=lambda name: sizes[name], default="float32")


def _dequantize(path: str, tensors: Mapping[str, mx.array], settings: Any) -> mx.array:
    scales, biases = tensors[f"{path}.scales"], tensors.get(f"{path}.biases")
    if _is_float(scales):
        scales = scales.astype(mx.float32)  # float32 is exact and three times as fast here
    if biases is not None:
        biases = biases.astype(mx.float32)
    try:
        weight = mx.dequantize(tensors[f"{path}.weight"], scales, biases, **settings)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"{path} is not quantised as its config.json states, {settings}: {error}"
        ) from error
    return weight.astype(mx.float32)


def quantize(model: nn.Module, tensors: Mapping[str, mx.array], quantization: Quantization) -> None:
    """Make the modules of a model quantised whose tensors are."""
    quantized = set(_triples(tensors))

    def settings(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if path not in quantized or not hasattr(module, "to_quantized"):
            return False
        return _settings(quantization, path)

    nn.quantize(model, class_predicate=settings)


def _in_dtype(array: mx.array, dtype: mx.Dtype | None) -> mx.array:
    return array.astype(dtype) if dtype is not None and _is_float(array) else array


def _is_float(array: mx.array) -> bool:
    return mx.issubdtype(array.dtype, mx.floating)


def _check_names(
    wanted: Mapping[str, mx.array], weights: Mapping[str, mx.array], fault: str
) -> None:
    problems = []
    if missing := sorted(wanted.keys() - weights.keys()):
        problems.append(f"lacks {_named(missing)}")
    if extra := sorted(weights.keys() - wanted.keys()):
        problems.append(f"holds {_named(extra)}, which the model does not have")
    misshapen = [
        f"{name} {weights[name].shape}, not {array.shape}"
        for name, array in wanted.items()
        if name in weights and weights[name].shape != array.shape
    ]
    if misshapen:
        problems.append(f"holds {_named(misshapen)}")
    whole = [
        f"{name} as {weights[name].dtype}"
        for name, array in wanted.items()
        if name in weights and _is_float(array) and not _is_float(weights[name])
    ]
    if whole:
        problems.append(f"holds {_named(whole)}, which must be floating-point")
    if problems:
        raise UnsupportedModelError(f"the checkpoint {' and '.join(problems)}: {fault}")


def _named(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def kinds_of_weights(module: nn.Module) -> list[str]:
    """Return the packings of the weights and their types: each of them runs in its own kernels."""
    parts = [(type(part).__name__, vars(part)) for part in module.modules()]
    packings = {
        f"{packed_words(facts['bits'], facts.get('mode'))} in {facts['group_size']}, {name}"
        for name, facts in parts
        if "bits" in facts and "group_size" in facts
    }
    flat: Any = tree_flatten(module.parameters())
    dtypes = {str(array.dtype).removeprefix("mlx.core.") for _, array in flat}
    return [*sorted(packings), *sorted(dtypes)]


def digest_of_weights(module: nn.Module) -> str:
    """Return a word that differs if a weight does: a hash of the sum of the bits of each row."""
    flat: Any = tree_flatten(module.parameters())
    found = sha256()
    for name, array in flat:
        words = array.view({1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[array.dtype.size])
        sums = words.astype(mx.uint32).sum(axis=-1) if words.ndim else words
        found.update(f"{name} {array.shape} {array.dtype}".encode() + np.array(sums).tobytes())
    return found.hexdigest()[:32]
