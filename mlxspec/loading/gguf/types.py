"""The types of GGUF tensors: their block sizes, and which of them can be decoded.

The package `gguf` is llama.cpp's own and knows every type by its number. A type is supported if its
`dequantize` decodes a block of zeros, so a newer `gguf` brings its new types by itself.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize


@dataclass(frozen=True)
class TensorType:
    """A tensor type: it stores blocks of `block_items` items in `block_bytes` bytes."""

    name: str
    block_items: int
    block_bytes: int


@cache
def find_type(type_id: int) -> TensorType | None:
    """Return the type of a number in a file, or None if it cannot be decoded."""
    try:
        kind = GGMLQuantizationType(type_id)
        items, n_bytes = GGML_QUANT_SIZES[kind]
        dequantize(np.zeros((1, n_bytes), np.uint8), kind)
    except (ValueError, KeyError, NotImplementedError):
        return None
    return TensorType(kind.name, items, n_bytes)


def name_of_type(type_id: int) -> str:
    """Return the name of a type, or its number if nothing is known about it."""
    try:
        return GGMLQuantizationType(type_id).name
    except ValueError:
        return f"type {type_id}"


def supported_types() -> list[str]:
    """Return the names of all types that can be decoded."""
    return [kind.name for kind in GGMLQuantizationType if find_type(int(kind)) is not None]
