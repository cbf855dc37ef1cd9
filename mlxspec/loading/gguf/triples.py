"""Convert blocks of GGUF tensors to MLX's affine triples, without decoding them.

A group of 32 weights is a scale s, a minimum m, and 32 small integers q; a weight is s q + m. This
is MLX's `scales * q + biases` in groups of 32:

    Q4_0, Q5_0   d (q - 8), d (q - 16)       Q4_1, Q5_1   d q + m       Q8_0   d q, q signed
    Q4_K, Q5_K   (D c) q - E e: c and e have 6 bits; 8 groups share D and E

The scales and minimums of K-quants are products, which are rounded to float16. That moves a weight
by a fiftieth of the step between two weights at most. A block holds weights 0-15 in the low halves
of its bytes and 16-31 in the high halves (K-quants: 0-31 and 32-63); MLX needs neighbours together.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from mlxspec.device import backend

GROUP_SIZE = 32
Bytes = npt.NDArray[np.uint8]
# Packed integers, scales and biases: one row per block.
Triple = tuple[Bytes, npt.NDArray[np.float16], npt.NDArray[np.float16]]


def packed_bits(name: str) -> int | None:
    """Return the bits into which a type is packed on this device, or None if it is decoded."""
    return _EXACT.get(name) or (_ON_GPU.get(name) if backend.keeps_weights_as_stored() else None)


# Each gets (n, bytes of a block) bytes.
def _q4_0(blocks: Bytes) -> Triple:
    scales = _halves(blocks, 0)
    return _neighbours(blocks[:, 2:]), scales, -8 * scales


def _q4_1(blocks: Bytes) -> Triple:
    return _neighbours(blocks[:, 4:]), _halves(blocks, 0), _halves(blocks, 2)


def _q8_0(blocks: Bytes) -> Triple:
    scales = _halves(blocks, 0)
    return blocks[:, 2:] ^ np.uint8(128), scales, -128 * scales  # signed to unsigned


def _q5_0(blocks: Bytes) -> Triple:
    scales = _halves(blocks, 0)
    return _five_bits(blocks[:, 2:6], blocks[:, 6:]), scales, -16 * scales


def _q5_1(blocks: Bytes) -> Triple:
    return _five_bits(blocks[:, 4:8], blocks[:, 8:]), _halves(blocks, 0), _halves(blocks, 2)


def _q4_k(blocks: Bytes) -> Triple:
    return _packed(_nibbles(blocks[:, 16:]), 4), *_products(blocks)


def _q5_k(blocks: Bytes) -> Triple:
    groups = np.arange(8, dtype=np.uint8)[:, None]
    fifth = blocks[:, None, 16:48] >> groups & np.uint8(1)  # bit g of byte i: group g, weight i
    return _packed(_nibbles(blocks[:, 48:]) | fifth << np.uint8(4), 5), *_products(blocks)


_EXACT = {"Q4_0": 4, "Q4_1": 4, "Q8_0": 8}
# A CPU computes in float32: there, decoding at once is exact and saves the triple.
_ON_GPU = {"Q5_0": 5, "Q5_1": 5, "Q4_K": 4, "Q5_K": 5}

READERS: Mapping[str, Callable[[Bytes], Triple]] = {  # of every type that can be packed
    **{"Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0},
    **{"Q4_K": _q4_k, "Q5_K": _q5_k},
}


def _halves(blocks: Bytes, at: int) -> npt.NDArray[np.float16]:
    return blocks[:, at : at + 2].copy().view("<f2")


def _neighbours(halves: Bytes) -> Bytes:
    """Turn (n, 16) bytes of weights i and i + 16 into bytes of weights 2 i and 2 i + 1."""
    pairs = np.ascontiguousarray(halves).view("<u2")
    low, high = pairs & 0x0F0F, pairs >> 4 & 0x0F0F
    packed = np.concatenate([low | low >> 4, high | high >> 4], axis=1)
    return packed.astype(np.uint8)  # the upper byte holds a copy


def _five_bits(fifth: Bytes, halves: Bytes) -> Bytes:
    """Join (n, 4) bytes of highest bits and (n, 16) bytes of weights i and i + 16."""
    high = np.unpackbits(fifth, axis=1, bitorder="little")
    return _packed(np.concatenate([halves & 15, halves >> 4], axis=1) | high << 4, 5)


def _nibbles(halves: Bytes) -> Bytes:
    """Turn (n, 128) bytes of weights i and i + 32 into weights, (n, 8 groups, 32)."""
    pairs = halves.reshape(-1, 4, 1, 32)
    return np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)


def _packed(weights: Bytes, bits: int) -> Bytes:
    """Pack integers of `bits` bits one after another, lowest bit first; one row per block."""
    planes = np.unpackbits(weights[..., None], axis=-1, count=bits, bitorder="little")
    return np.packbits(planes.reshape(len(weights), -1), axis=1, bitorder="little")


def _products(blocks: Bytes) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.float16]]:
    """Return the scales and biases of the 8 groups of K-quants, (n, 8) each."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    factors = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minimums = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    scale, minimum = (_halves(blocks, at).astype(np.float32) for at in (0, 2))
    return (scale * factors).astype(np.float16), (-minimum * minimums).astype(np.float16)
