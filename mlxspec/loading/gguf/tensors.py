"""Convert the tensors of a GGUF file to MLX arrays.

Types that are MLX's affine format stay packed (`triples.py`). The package `gguf` decodes all others
to floating-point numbers. Both go in chunks, because intermediate results are many times as large
as the blocks. (MLX's own GGUF reader is not used: it opens the file for writing and does not check
its header.)
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from mlxspec.device import backend
from mlxspec.loading.gguf.header import TensorInfo
from mlxspec.loading.gguf.triples import READERS, Bytes, Triple, packed_bits

_CHUNK_ITEMS = 1 << 18  # the fastest of 2^15, 2^18 and 2^21: the work fits a level-2 cache
_Part = TypeVar("_Part")
_PLAIN = {"F32": "<f4", "F16": "<f2"}


def decoded_type() -> str:
    """Return the type, F16 or F32, of weights that MLX cannot keep in the format of the file."""
    return "F16" if backend.keeps_weights_as_stored() else "F32"


def read_tensors(infos: dict[str, TensorInfo]) -> dict[str, mx.array]:
    """Return the arrays by name; `x.weight` of a packed type also gives `x.scales` and `x.biases`.

    The tensors must be inside their files, as `read_header` ensures.
    """
    files = {path: np.memmap(path, np.uint8, mode="r") for path in {i.path for i in infos.values()}}
    arrays: dict[str, mx.array] = {}
    for name, info in infos.items():
        raw = files[info.path][info.offset : info.offset + info.n_bytes]
        if packed_bits(info.type.name) is None:
            arrays[name] = _plain(raw, info)
            continue
        quants, scales, biases = _triple(raw, info)
        prefix, rows = name.removesuffix("weight"), info.shape[:-1]
        arrays[name] = mx.array(quants.reshape(*rows, -1).view(np.uint32))
        arrays[prefix + "scales"] = mx.array(scales.reshape(*rows, -1))
        arrays[prefix + "biases"] = mx.array(biases.reshape(*rows, -1))
    return arrays


def _triple(raw: Bytes, info: TensorInfo) -> Triple:
    parts = _in_chunks(READERS[info.type.name], raw, info)
    quants, scales, biases = (np.concatenate(part) for part in zip(*parts, strict=True))
    return quants, scales, biases


def _plain(raw: Bytes, info: TensorInfo) -> mx.array:
    if info.type.name == "BF16":  # NumPy has no such type
        return mx.array(raw.view("<u2").reshape(info.shape)).view(mx.bfloat16)
    if info.type.name in _PLAIN:
        return mx.array(raw.view(_PLAIN[info.type.name]).reshape(info.shape))
    return mx.array(_decoded(raw, info).reshape(info.shape))


def _decoded(raw: Bytes, info: TensorInfo) -> npt.NDArray[np.floating]:
    kind, dtype = GGMLQuantizationType[info.type.name], _PLAIN[decoded_type()]

    def decode(blocks: Bytes) -> npt.NDArray[np.floating]:
        numbers: npt.NDArray[np.float32] = dequantize(blocks.reshape(1, -1), kind)[0]
        return numbers.astype(dtype)

    return np.concatenate(_in_chunks(decode, raw, info))


def _in_chunks(convert: Callable[[Bytes], _Part], raw: Bytes, info: TensorInfo) -> list[_Part]:
    """Convert blocks in chunks on all cores: NumPy frees the interpreter's lock."""
    blocks = raw.reshape(-1, info.type.block_bytes)
    size = max(1, _CHUNK_ITEMS // info.type.block_items)

    def one(start: int) -> _Part:
        with np.errstate(all="ignore"):  # a damaged scale gives infinities, as in a float tensor
            return convert(blocks[start : start + size])

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, range(0, len(blocks), size)))
