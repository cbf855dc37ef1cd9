"""The blocks of GGUF tensors, by their formulas and against MLX's own reader."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.loading.gguf.header import read_header
from mlxspec.loading.gguf.tensors import read_tensors
from tests.support.gguf_files import (
    BF16,
    F16,
    Q4_0,
    Q4_1,
    Q8_0,
    Stored,
    gguf_bytes,
    random_blocks,
)


def read_one(tmp_path, shape, type_id, raw):
    path = tmp_path / "one.gguf"
    path.write_bytes(gguf_bytes({}, {"x.weight": Stored(shape, type_id, raw)}))
    return read_tensors(path, read_header(path).tensors), mx.load(str(path))


def dequantized(arrays, bits):
    scales, biases = (arrays[f"x.{name}"].astype(mx.float32) for name in ("scales", "biases"))
    return mx.dequantize(arrays["x.weight"], scales, biases, 32, bits).tolist()


def test_q4_0_is_scale_times_integer_less_eight(tmp_path):
    halves, rest, raw = random_blocks(6, 1, 16)
    expected = [
        [d * ((byte & 15) - 8) for byte in block] + [d * ((byte >> 4) - 8) for byte in block]
        for (d,), block in zip(halves, rest, strict=True)
    ]
    ours, _ = read_one(tmp_path, (3, 64), Q4_0, raw)
    np.testing.assert_allclose(np.reshape(dequantized(ours, 4), (6, 32)), expected, rtol=1e-6)


def test_q4_1_is_scale_times_integer_plus_minimum(tmp_path):
    halves, rest, raw = random_blocks(6, 2, 16)
    expected = [
        [d * (byte & 15) + m for byte in block] + [d * (byte >> 4) + m for byte in block]
        for (d, m), block in zip(halves, rest, strict=True)
    ]
    ours, _ = read_one(tmp_path, (3, 64), Q4_1, raw)
    found = np.reshape(dequantized(ours, 4), (6, 32))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_q8_0_is_scale_times_signed_integer(tmp_path):
    halves, rest, raw = random_blocks(6, 1, 32)
    expected = [
        [d * (byte - 256 if byte > 127 else byte) for byte in block]
        for (d,), block in zip(halves, rest, strict=True)
    ]
    ours, _ = read_one(tmp_path, (3, 64), Q8_0, raw)
    found = np.reshape(dequantized(ours, 8), (6, 32))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("type_id", "n_halves", "n_bytes"), [(Q4_0, 1, 16), (Q4_1, 2, 16), (Q8_0, 1, 32)]
)
def test_triples_are_those_of_mlx(tmp_path, type_id, n_halves, n_bytes):
    _, _, raw = random_blocks(6, n_halves, n_bytes)
    ours, theirs = read_one(tmp_path, (3, 64), type_id, raw)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert ours[name].dtype == array.dtype
        assert mx.array_equal(ours[name], array)


def test_half_precision_is_kept(tmp_path):
    values = np.array([[1.5, -2.0], [65504.0, 6e-8]], "<f2")
    ours, _ = read_one(tmp_path, (2, 2), F16, values.tobytes())
    assert ours["x.weight"].dtype == mx.float16
    assert ours["x.weight"].tolist() == values.tolist()


def test_bfloat16_keeps_its_range(tmp_path):
    values = [1.0, -3.0, 2.0**100, 2.0**-100]
    upper_halves = (np.array(values, "<f4").view("<u4") >> 16).astype("<u2")
    ours, _ = read_one(tmp_path, (4,), BF16, upper_halves.tobytes())
    assert ours["x.weight"].dtype == mx.bfloat16
    assert ours["x.weight"].tolist() == values
