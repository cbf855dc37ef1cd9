"""Convert the tensors of a GGUF file to MLX arrays, quantised blocks to MLX's affine triples.

A block of 32 weights is a scale d, sometimes a minimum m, and 32 small integers q:

    Q4_0   d (q - 8)         Q4_1   d q + m         Q8_0   d q, q signed

This is exactly MLX's `scales * q + biases` in groups of 32. A 4-bit block holds weights 0-15 in the
low halves of its 16 bytes and 16-31 in the high halves; MLX needs neighbours in one byte. (MLX's
own GGUF reader is not used: it opens the file for writing and does not check its header.)
"""

from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from mlxspec.loading.gguf.header import TensorInfo

GROUP_SIZE = 32
_Bytes = npt.NDArray[np.uint8]


def read_tensors(path: Path, infos: dict[str, TensorInfo]) -> dict[str, mx.array]:
    """Return the arrays by name; a quantised `x.weight` also gives `x.scales` and `x.biases`.

    Args:
        path: The file.
        infos: Its tensors, which are known to be inside the file.
    """
    data = np.memmap(path, np.uint8, mode="r")
    arrays: dict[str, mx.array] = {}
    for name, info in infos.items():
        raw = data[info.offset : info.offset + info.n_bytes]
        if info.type.block_items == 1:
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
    return mx.array(raw.view("<f4" if info.type.name == "F32" else "<f2").reshape(info.shape))


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
