"""Convert the tensors of a GGUF file to MLX arrays.

Three types become MLX's affine triples. Their block of 32 weights is a scale d, sometimes a minimum
m, and 32 small integers q:

    Q4_0   d (q - 8)         Q4_1   d q + m         Q8_0   d q, q signed

This is exactly MLX's `scales * q + biases` in groups of 32. A 4-bit block holds weights 0-15 in the
low halves of its 16 bytes and 16-31 in the high halves; MLX needs neighbours in one byte. (MLX's
own GGUF reader is not used: it opens the file for writing and does not check its header.)

The package `gguf` decodes all other types, such as K-quants and IQ, to floating-point numbers. It
does so in chunks, because its intermediate results are many times as large as the blocks.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from mlxspec.device import backend
from mlxspec.loading.gguf.header import TensorInfo
from mlxspec.loading.gguf.types import PACKED_BITS

GROUP_SIZE = 32
_CHUNK_ITEMS = 1 << 18  # the fastest of 2^15, 2^18 and 2^21: the work fits a cache of level 2
_PLAIN = {"F32": "<f4", "F16": "<f2"}
_Bytes = npt.NDArray[np.uint8]


def decoded_type() -> str:
    """Return the type, F16 or F32, of weights that MLX cannot keep in the format of the file."""
    return "F16" if backend.keeps_weights_as_stored() else "F32"


def read_tensors(path: Path, infos: dict[str, TensorInfo]) -> dict[str, mx.array]:
    """Return the arrays by name; `x.weight` of a packed type also gives `x.scales` and `x.biases`.

    Args:
        path: The file.
        infos: Its tensors, which are known to be inside the file.
    """
    data = np.memmap(path, np.uint8, mode="r")
    arrays: dict[str, mx.array] = {}
    for name, info in infos.items():
        raw = data[info.offset : info.offset + info.n_bytes]
        if info.type.name not in PACKED_BITS:
            arrays[name] = _plain(raw, info)
            continue
        quants, scales, biases = _READERS[info.type.name](raw.reshape(-1, info.type.block_bytes))
        prefix, rows = name.removesuffix("weight"), info.shape[:-1]
        arrays[name] = mx.array(quants.reshape(*rows, -1).view(np.uint32))
        arrays[prefix + "scales"] = mx.array(scales.reshape(*rows, -1))
        arrays[prefix + "biases"] = mx.array(biases.reshape(*rows, -1))
    return arrays


def _plain(raw: _Bytes, info: TensorInfo) -> mx.array:
    if info.type.name == "BF16":  # NumPy has no such type
        return mx.array(raw.view("<u2").reshape(info.shape)).view(mx.bfloat16)
    if info.type.name in _PLAIN:
        return mx.array(raw.view(_PLAIN[info.type.name]).reshape(info.shape))
    return mx.array(_decoded(raw, info).reshape(info.shape))


def _decoded(raw: _Bytes, info: TensorInfo) -> npt.NDArray[np.floating]:
    """Decode blocks in chunks of whole blocks, on all cores: NumPy frees the interpreter's lock."""
    kind, items = GGMLQuantizationType[info.type.name], info.type.block_items
    blocks = raw.reshape(-1, info.type.block_bytes)
    decoded = np.empty((len(blocks), items), _PLAIN[decoded_type()])

    def decode(bounds: tuple[int, int]) -> None:
        chunk = slice(*bounds)
        with np.errstate(all="ignore"):  # a damaged scale gives infinities, as in a float tensor
            decoded[chunk] = dequantize(blocks[chunk].reshape(1, -1), kind).reshape(-1, items)

    starts = range(0, len(blocks), max(1, _CHUNK_ITEMS // items))
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(decode, pairwise([*starts, len(blocks)])):
            pass  # an error of a thread is raised here
    return decoded


_Triple = tuple[_Bytes, npt.NDArray[np.float16], npt.NDArray[np.float16]]


def _q4_0(blocks: _Bytes) -> _Triple:
    scales = _halves(blocks, 0)
    return _neighbours(blocks[:, 2:]), scales, -8 * scales


def _q4_1(blocks: _Bytes) -> _Triple:
    return _neighbours(blocks[:, 4:]), _halves(blocks, 0), _halves(blocks, 2)


def _q8_0(blocks: _Bytes) -> _Triple:
    scales = _halves(blocks, 0)
    return blocks[:, 2:] ^ np.uint8(128), scales, -128 * scales  # signed to unsigned


def _halves(blocks: _Bytes, at: int) -> npt.NDArray[np.float16]:
    return blocks[:, at : at + 2].copy().view("<f2")


def _neighbours(halves: _Bytes) -> _Bytes:
    """Turn (n, 16) bytes of weights i and i + 16 into bytes of weights 2 i and 2 i + 1."""
    pairs = np.ascontiguousarray(halves).view("<u2")
    low, high = pairs & 0x0F0F, pairs >> 4 & 0x0F0F
    packed = np.concatenate([low | low >> 4, high | high >> 4], axis=1)
    return packed.astype(np.uint8)  # the upper byte holds a copy


_READERS = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0}
