"""The kinds of stored rows of keys or values: plain, or packed by `mx.quantize`.

A kind turns rows into the *planes* that a cache holds, and planes into what attention reads;
`make_cache` in `kv/cache.py` chooses it. Packed rows are integers, with scales and biases by group.
A product can use them in packed form, which loads a quarter or less of the bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import mlx.core as mx

from mlxspec.errors import UnsupportedOperationError
from mlxspec.params import KV_BITS, KV_BITS_IN_WORDS

GROUP_SIZES = (64, 32)


class PlainRows:
    """Rows in their own dtype, one plane."""

    num_planes = 1

    def pack(self, rows: mx.array) -> list[mx.array]:
        return [rows]

    def read(self, planes: Sequence[mx.array]) -> "Rows":
        return planes[0]


@dataclass(frozen=True)
class Quantization:
    """Rows of `bits` per value, in groups of `group_size` with one scale each."""

    bits: int
    group_size: int
    num_planes: ClassVar[int] = 3

    @staticmethod
    def for_head_dim(bits: int, head_dim: int) -> "Quantization":
        """Return the packing for rows of `head_dim` values."""
        if bits not in KV_BITS:
            raise ValueError(f"keys and values can be kept in {KV_BITS_IN_WORDS} bits, not {bits}")
        for group_size in GROUP_SIZES:
            if head_dim % group_size == 0:
                return Quantization(bits, group_size)
        raise UnsupportedOperationError(
            f"quantised keys and values need a head size divisible by 32; this model has "
            f"{head_dim}: leave the KV bits unset"
        )

    def pack(self, rows: mx.array) -> list[mx.array]:
        return list(mx.quantize(rows, group_size=self.group_size, bits=self.bits))

    def read(self, planes: Sequence[mx.array]) -> "Rows":
        return PackedRows(self, tuple(planes))

    def unpack(self, packed: mx.array, scales: mx.array, biases: mx.array) -> mx.array:
        """Return the rows (..., D) that `pack` packed, bit for bit as `mx.dequantize` does.

        On a CPU `mx.dequantize` unpacks one value after the other; operations on whole arrays give
        the same result faster.
        """
        if mx.default_device().type != mx.DeviceType.cpu:
            return mx.dequantize(packed, scales, biases, group_size=self.group_size, bits=self.bits)
        codes = self._codes(packed).astype(scales.dtype)
        if scales.shape[-1] == 1:
            return codes * scales + biases
        groups = codes.reshape(*scales.shape, self.group_size)
        return (groups * scales[..., None] + biases[..., None]).reshape(codes.shape)

    def _codes(self, packed: mx.array) -> mx.array:
        """Return (..., D) uint8: the integers in (..., D * bits / 32) uint32 words."""
        octets = packed.view(mx.uint8)
        if self.bits == 8:
            return octets
        assert self.bits == 4, f"words of {self.bits} bits a number are not taken apart here"
        pairs = octets.astype(mx.uint16)  # 0x00hl becomes 0x0h0l: the bytes l and h
        return ((pairs | (pairs << 4)) & 0x0F0F).view(mx.uint8)


@dataclass(frozen=True)
class PackedRows:
    """Rows (B, H, n, D) that stay packed.

    `planes` are the integers, scales and biases, cut to n rows.
    """

    packing: Quantization
    planes: tuple[mx.array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, n, D)."""
        words = self.planes[0].shape
        return *words[:-1], words[-1] * 32 // self.packing.bits

    def unpacked(self) -> mx.array:
        return self.packing.unpack(*self.planes)

    def product(self, x: mx.array, *, transpose: bool) -> mx.array:
        """Return (B, H, L, n) @ rows, or transposed (B, H, L, D) @ rows^T."""
        packed, scales, biases = self.planes
        bits, group_size = self.packing.bits, self.packing.group_size
        return mx.quantized_matmul(
            x, packed, scales, biases, transpose=transpose, group_size=group_size, bits=bits
        )


Rows = mx.array | PackedRows
"""Rows (B, H, n, D), packed or not."""


def unpacked(rows: Rows) -> mx.array:
    """Return rows (B, H, n, D) as an array."""
    return rows.unpacked() if isinstance(rows, PackedRows) else rows
