"""A checkpoint's tensors, checked one by one and put into a model.

On a CPU every weight becomes float32: the CPU kernel for quantised products costs n times as much
for n rows, and half-precision products are slower still. On a GPU quantised weights stay so, and
the floating-point ones take the type of the embedding, so that nothing is promoted on the way.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec import backend
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.checkpoint import Quantization

_NAMED = 4  # tensors named in a message before the rest is counted
_BYTES_PER_WEIGHT = 4


def load_weights(
    model: nn.Module, tensors: Mapping[str, mx.array], quantization: Quantization | None = None
) -> str:
    """Put a checkpoint's tensors into a model; return the weight type in words.

    Args:
        model: A model whose parameters are named as the tensors; changed in place.
        tensors: Arrays by name. Tables of rotary frequencies are ignored, and so is `lm_head` of
            a model that has none because it is tied to the embedding.
        quantization: How triples are to be read.

    Raises:
        UnsupportedModelError: Tensors are missing, left over or misshapen, or do not fit in memory.
    """
    wanted = dict(tree_flatten(model.parameters()))
    tied = not any(name.startswith("lm_head.") for name in wanted)
    kept = {name: array for name, array in tensors.items() if not _is_ignored(name, tied)}
    stored = _stored_words(kept, quantization)
    if backend.is_cpu():
        _check_memory(wanted)
        weights = _to_float32(kept, quantization)
    else:
        if quantization is not None:
            _quantize(model, kept, quantization)
            wanted = dict(tree_flatten(model.parameters()))
        weights = _to_one_dtype(kept)
    _check_names(wanted, weights)
    model.load_weights(list(weights.items()))
    mx.eval(model.parameters())
    return words_of_loaded(stored)


def words_of_loaded(stored: str) -> str:
    """Return the weight type in words of a model that is loaded here from the stored type."""
    if not backend.is_cpu() or stored == "float32":
        return stored
    return f"float32 from {stored}"


def _is_ignored(name: str, tied: bool) -> bool:
    return name.endswith("rotary_emb.inv_freq") or (tied and name.startswith("lm_head."))


def _triples(tensors: Mapping[str, mx.array]) -> list[str]:
    """Return the module paths that are quantised; scales without a weight are named later."""
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
    sizes: dict[str, int] = {}
    for path in _triples(tensors):
        bits = _settings(quantization, path).get("bits", 4)
        key = f"{bits}-bit"
        sizes[key] = sizes.get(key, 0) + tensors[f"{path}.weight"].nbytes
    if not sizes:
        for array in tensors.values():
            key = str(array.dtype).removeprefix("mlx.core.")
            sizes[key] = sizes.get(key, 0) + array.nbytes
    return max(sizes, key=lambda key: sizes[key], default="float32")


def _check_memory(wanted: Mapping[str, mx.array]) -> None:
    needed = sum(array.size for array in wanted.values()) * _BYTES_PER_WEIGHT / backend.GB
    if needed > backend.memory_gb():
        raise UnsupportedModelError(
            f"the model takes {needed:.1f} GB as float32, which a CPU needs; this machine has "
            f"{backend.memory_gb():.1f} GB: choose a smaller model, or a machine with a GPU"
        )


def _to_float32(
    tensors: Mapping[str, mx.array], quantization: Quantization | None
) -> dict[str, mx.array]:
    weights: dict[str, mx.array] = {}
    quantized = set(_triples(tensors))
    for name, array in tensors.items():
        path, _, kind = name.rpartition(".")
        if path not in quantized or kind == "bias":
            weights[name] = array.astype(mx.float32)
        elif kind == "weight":
            weights[name] = _dequantize(path, tensors, _settings(quantization, path))
    return weights


def _dequantize(path: str, tensors: Mapping[str, mx.array], settings: Any) -> mx.array:
    scales, biases = tensors[f"{path}.scales"], tensors.get(f"{path}.biases")
    if mx.issubdtype(scales.dtype, mx.floating):
        scales = scales.astype(mx.float32)  # computed in float32: exact, and three times as fast
    if biases is not None:
        biases = biases.astype(mx.float32)
    try:
        weight = mx.dequantize(tensors[f"{path}.weight"], scales, biases, **settings)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"{path} is not quantised as its config.json states, {settings}: {error}"
        ) from error
    return weight.astype(mx.float32)


def _quantize(
    model: nn.Module, tensors: Mapping[str, mx.array], quantization: Quantization
) -> None:
    quantized = set(_triples(tensors))

    def settings(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if path not in quantized or not hasattr(module, "to_quantized"):
            return False
        return _settings(quantization, path)

    nn.quantize(model, class_predicate=settings)


def _to_one_dtype(tensors: Mapping[str, mx.array]) -> dict[str, mx.array]:
    embedding = "model.embed_tokens."
    name = embedding + ("scales" if embedding + "scales" in tensors else "weight")
    dtype = tensors[name].dtype if name in tensors else mx.uint8
    if not mx.issubdtype(dtype, mx.floating):  # mxfp4 and its like have integer scales
        return dict(tensors)
    return {
        name: array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) else array
        for name, array in tensors.items()
    }


def _check_names(wanted: Mapping[str, mx.array], weights: Mapping[str, mx.array]) -> None:
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
    if problems:
        raise UnsupportedModelError(
            f"the checkpoint {' and '.join(problems)}: it is not of the family that its "
            "config.json states, or it is incomplete"
        )


def _named(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
