"""The blocks of GGUF tensors, against MLX's own reader and against llama.cpp's numbers."""

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from mlxspec.device import backend
from mlxspec.loading.gguf import file as tensors
from mlxspec.loading.gguf.file import read_tensors
from mlxspec.loading.gguf.header import read_header
from tests.support.gguf_files import BF16, F16, Q4_0, Q4_1, Q8_0, Stored, gguf_bytes, random_blocks


def read_one(tmp_path, shape, type_id, raw, *, by_mlx=True):
    path = tmp_path / "one.gguf"
    path.write_bytes(gguf_bytes({}, {"x.weight": Stored(shape, type_id, raw)}))
    theirs = mx.load(str(path)) if by_mlx else None
    return read_tensors(read_header(path).tensors), theirs


def dequantized(arrays, bits):
    scales, biases = (arrays[f"x.{name}"].astype(mx.float32) for name in ("scales", "biases"))
    return mx.dequantize(arrays["x.weight"], scales, biases, 32, bits).tolist()


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


def test_half_precision_is_kept_and_bfloat16_keeps_its_range(tmp_path):
    halves = np.array([[1.5, -2.0], [65504.0, 6e-8]], "<f2")
    ours, _ = read_one(tmp_path, (2, 2), F16, halves.tobytes())
    assert ours["x.weight"].dtype == mx.float16
    assert ours["x.weight"].tolist() == halves.tolist()
    values = [1.0, -3.0, 2.0**100, 2.0**-100]
    upper_halves = (np.array(values, "<f4").view("<u4") >> 16).astype("<u2")
    ours, _ = read_one(tmp_path, (4,), BF16, upper_halves.tobytes())
    assert ours["x.weight"].dtype == mx.bfloat16
    assert ours["x.weight"].tolist() == values


# ---- types that are decoded -------------------------------------------------------------------

DECODED = [
    *("Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0", "MXFP4"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
]


def random_tensor(kind, rows=3, blocks=2):
    """The bytes and the shape of a tensor of random blocks."""
    items, n_bytes = GGML_QUANT_SIZES[kind]
    draw = np.random.default_rng(int(kind))
    raw = draw.integers(0, 256, rows * blocks * n_bytes, dtype=np.uint8)
    return (rows, blocks * items), raw


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", DECODED)
def test_a_decoded_type_has_the_numbers_of_llama_cpp_in_any_chunks(tmp_path, monkeypatch, name):
    kind = GGMLQuantizationType[name]
    shape, raw = random_tensor(kind)
    with np.errstate(all="ignore"):
        expected = dequantize(raw.reshape(shape[0], -1), kind)
    monkeypatch.setattr(tensors, "_CHUNK_ITEMS", 4 * GGML_QUANT_SIZES[kind][0])  # 4 blocks, then 2
    ours, _ = read_one(tmp_path, shape, int(kind), raw.tobytes(), by_mlx=False)
    assert ours.keys() == {"x.weight"}
    assert ours["x.weight"].dtype == mx.float32
    np.testing.assert_array_equal(np.array(ours["x.weight"]), expected)


@pytest.mark.parametrize("name", ["Q5_0", "Q5_1", "Q4_K", "Q5_K"])
def test_weights_that_stay_packed_are_those_of_llama_cpp(tmp_path, monkeypatch, name):
    kind = GGMLQuantizationType[name]
    shape, raw = random_tensor(kind)
    blocks = raw.reshape(-1, GGML_QUANT_SIZES[kind][1])
    numbers = 1 if name == "Q5_0" else 2
    blocks[:, : 2 * numbers] = np.full((len(blocks), numbers), 0.01, "<f2").view(np.uint8)
    expected = dequantize(raw.reshape(shape[0], -1), kind)
    monkeypatch.setattr(backend, "keeps_weights_as_stored", lambda: True)
    monkeypatch.setattr(tensors, "_CHUNK_ITEMS", 4 * GGML_QUANT_SIZES[kind][0])
    ours, _ = read_one(tmp_path, shape, int(kind), raw.tobytes(), by_mlx=False)
    bits = int(name[1])
    assert ours["x.weight"].nbytes * 8 == bits * expected.size
    scales, biases = (np.repeat(np.array(ours[f"x.{k}"]), 32, 1) for k in ("scales", "biases"))
    allowed = (32 * abs(scales) + abs(biases)).astype(float) / 2**11  # the rounding of both
    found = np.array(dequantized(ours, bits))
    assert (abs(found - expected) <= allowed if name.endswith("K") else found == expected).all()


def test_decoded_weights_take_half_the_memory_where_weights_stay_as_stored(tmp_path, monkeypatch):
    kind = GGMLQuantizationType.IQ4_NL
    shape, raw = random_tensor(kind)
    monkeypatch.setattr(backend, "keeps_weights_as_stored", lambda: True)
    ours, _ = read_one(tmp_path, shape, int(kind), raw.tobytes(), by_mlx=False)
    assert ours["x.weight"].dtype == mx.float16
