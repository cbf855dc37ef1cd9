"""Quantised rows: each reads as if it were alone, close to what was written."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.device.packed import Quantization
from mlxspec.errors import UnsupportedOperationError
from tests.support.dict_cache import (
    SIZE,
    assert_same,
    by_position,
    content,
    filled,
    random_rows,
    stage,
)
from tests.support.pairwise import pairwise


def quantised_alone(row, packing):
    """The row (..., D) after a way through `packing`, by the definition of affine quantisation.

    mx.quantize is the truth for one row alone; what is tested is that neighbours, moves and
    slices change nothing.
    """
    packed = mx.quantize(mx.array(row), group_size=packing.group_size, bits=packing.bits)
    settings = {"group_size": packing.group_size, "bits": packing.bits}
    return np.array(mx.dequantize(*packed, **settings))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("max_size", "keep"), [(None, 0), (8, 3)])
def test_a_quantised_row_reads_as_if_quantised_alone(bits, max_size, keep):
    packing = Quantization.for_head_dim(bits, SIZE)
    cache, truth = filled(max_size, keep, n=13, quantization=packing)
    rows = random_rows(6, 100)
    stage(cache, rows)
    cache.commit([0, 2, 5])
    truth.append([by_position(rows)[index] for index in (0, 2, 5)])
    expected = {p: quantised_alone(row, packing) for p, row in truth.rows.items()}
    assert_same(content(cache), expected)


@pytest.mark.parametrize(("bits", "share"), [(8, 0.40), (4, 0.30)])
def test_a_quantised_row_is_within_a_step_of_the_row_and_takes_less_memory(bits, share):
    cache, truth = filled(n=3, quantization=Quantization.for_head_dim(bits, SIZE))
    assert cache.nbytes < share * filled(n=3)[0].nbytes
    held = content(cache)
    for position, row in truth.rows.items():
        step = (row.max(-1, keepdims=True) - row.min(-1, keepdims=True)) / (2**bits - 1)
        error = np.abs(held[position] - row)
        assert (error <= 1.1 * step).all()
        assert (error > 0).any()


@pytest.mark.parametrize(("head_dim", "group_size"), [(32, 32), (64, 64), (96, 32), (128, 64)])
def test_the_group_divides_the_head(head_dim, group_size):
    assert Quantization.for_head_dim(8, head_dim) == Quantization(8, group_size)


@pytest.mark.parametrize(
    ("bits", "head_dim", "error", "message"),
    [
        (8, 80, UnsupportedOperationError, "divisible by 32; this model has 80"),
        *((bits, 64, ValueError, "4 or 8 bits") for bits in (0, 2, 3, 16)),
    ],
)
def test_refuses_a_head_that_no_group_divides_and_other_numbers_of_bits(
    bits, head_dim, error, message
):
    with pytest.raises(error, match=message):
        Quantization.for_head_dim(bits, head_dim)


@pytest.mark.parametrize("bits", [2, 3, 6])
def test_words_of_other_bits_are_not_taken_apart_as_if_they_had_four(bits):
    (packed, *_) = mx.quantize(mx.ones((1, 64)), group_size=64, bits=bits)
    with pytest.raises(AssertionError, match=f"words of {bits} bits"):
        Quantization(bits, 64)._codes(packed)


@pairwise(head_dim=[32, 64, 96, 128, 256], bits=[4, 8], dtype=[mx.float32, mx.float16, mx.bfloat16])
def test_packed_rows_are_read_as_mlx_reads_them_bit_for_bit(bits, head_dim, dtype):
    packing = Quantization.for_head_dim(bits, head_dim)
    rows = random_rows(9, 7, size=head_dim, dtype=dtype) * 3
    packed = mx.quantize(rows, group_size=packing.group_size, bits=bits)
    expected = mx.dequantize(*packed, group_size=packing.group_size, bits=bits)
    parts = [part[..., 2:7, :] for part in packed]  # as they lie in a store: rows of more
    read = packing.unpack(*parts)
    assert read.dtype == dtype
    assert mx.array_equal(read, expected[..., 2:7, :])
