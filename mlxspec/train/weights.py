"""Weights for training: in float32 before it, and quantised after it.

Matrices are quantised to a few bits; everything else is stored in bfloat16. Scales are float16,
because with bfloat16 scales 8 bits are no better than 7.
"""

from collections.abc import Mapping
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from numpy.typing import NDArray

GROUP_SIZE = 64


def pack(
    tensors: Mapping[str, mx.array], bits: int, *, exceptions: Mapping[str, int] | None = None
) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return quantised tensors, and the `quantization` entry for their config.

    Args:
        tensors: Arrays by name. A matrix `X.weight` whose rows divide into groups becomes
            `X.weight`, `X.scales` and `X.biases`; integers do not change.
        bits: 4, 5, 6 or 8.
        exceptions: Other bits for some modules, keyed by path.
    """
    packed: dict[str, mx.array] = {}
    quantization: dict[str, Any] = {"group_size": GROUP_SIZE, "bits": bits}
    for name, array in tensors.items():
        path = name.removesuffix(".weight")
        if not mx.issubdtype(array.dtype, mx.floating):
            packed[name] = array
        elif array.ndim == 2 and name.endswith(".weight") and array.shape[1] % GROUP_SIZE == 0:
            own = (exceptions or {}).get(path, bits)
            if own != bits:
                quantization[path] = {"group_size": GROUP_SIZE, "bits": own}
            parts = mx.quantize(array.astype(mx.float16), GROUP_SIZE, own)
            packed |= zip((name, f"{path}.scales", f"{path}.biases"), parts, strict=True)
        else:
            packed[name] = array.astype(mx.bfloat16)
    return packed, quantization


def unpack(tensors: Mapping[str, mx.array], quantization: Mapping[str, Any]) -> dict[str, mx.array]:
    """Return quantised tensors as float32 matrices and vectors; integers do not change."""
    unpacked: dict[str, mx.array] = {}
    for name, array in tensors.items():
        path, _, kind = name.rpartition(".")
        if f"{path}.scales" not in tensors:
            is_float = mx.issubdtype(array.dtype, mx.floating)
            unpacked[name] = array.astype(mx.float32) if is_float else array
        elif kind == "weight":
            settings = quantization.get(path, quantization)
            parts = (array, tensors[f"{path}.scales"], tensors[f"{path}.biases"])
            matrix = mx.dequantize(*parts, settings["group_size"], settings["bits"])
            unpacked[name] = matrix.astype(mx.float32)
        elif kind == "bias":
            unpacked[name] = array.astype(mx.float32)
    return unpacked


def dense(linear: Any) -> mx.array:
    """Return the float32 weight of a layer, whether it is quantised or not."""
    weight: mx.array = linear.weight
    if "scales" in linear:
        biases = linear.get("biases")
        mode = getattr(linear, "mode", "affine")
        weight = mx.dequantize(
            weight, linear.scales, biases, linear.group_size, linear.bits, mode=mode
        )
    return weight.astype(mx.float32)


def dense_rows(states: mx.array, places: NDArray[np.intp]) -> mx.array:
    """Return the (n, D) float32 states at (n,) positions of (L, D) states."""
    rows: mx.array = states[mx.array(places.astype(np.int32))].astype(mx.float32)
    return rows


def flat(tree: Any) -> dict[str, mx.array]:
    """Return the arrays of a tree, keyed by their dotted paths."""
    return dict(cast(list[tuple[str, mx.array]], tree_flatten(tree)))
