"""The header and the blocks of a GGUF file: all values are read, and none is trusted.

Blocks are compared with MLX's own reader and with llama.cpp's numbers.
"""

import random
import struct

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from mlxspec.device import backend
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf import file as tensors
from mlxspec.loading.gguf.file import read_tensors
from mlxspec.loading.gguf.header import read_header
from tests.support.gguf_files import (
    BF16,
    F16,
    F32,
    IQ2_XXS,
    Q4_0,
    Q4_1,
    Q4_K,
    Q8_0,
    Q8_K,
    Stored,
    Value,
    floats,
    gguf_bytes,
    random_blocks,
    string,
    typed,
)

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.eps": 0.5,
    "tokens": ["a", "bc", "Ġü"],
    "types": [1, 2, 3],
    "flag": True,
}
TENSORS = {
    "a.weight": floats(np.arange(12.0).reshape(3, 4)),
    "q.weight": Stored((2, 32), Q4_0, bytes(range(36))),
    "k.weight": Stored((1, 256), Q4_K, bytes(range(144))),
    "i.weight": Stored((2, 256), IQ2_XXS, bytes(range(132))),
    "h.weight": Stored((5,), F16, np.arange(5, dtype="<f2").tobytes()),
}


def header_of(tmp_path, content: bytes):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return read_header(path)


def refusal_of(tmp_path, content: bytes) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        header_of(tmp_path, content)
    return str(caught.value)


def test_reads_every_kind_of_value_and_shapes_rows_first(tmp_path):
    values = METADATA | {"double": Value(12, struct.pack("<d", 1.25)), "last": 7}
    header = header_of(tmp_path, gguf_bytes(values, TENSORS))
    assert header.metadata == METADATA | {"double": 1.25, "last": 7}
    shapes = {name: tensor.shape for name, tensor in TENSORS.items()}
    assert {name: info.shape for name, info in header.tensors.items()} == shapes


def test_reads_a_file_written_by_mlx(tmp_path):
    path = tmp_path / "mlx.gguf"
    arrays = {"x.weight": mx.arange(6.0).reshape(2, 3), "y": mx.array([1.5], mx.float16)}
    mx.save_gguf(str(path), arrays, {"general.name": "n", "k": mx.array(3, mx.uint32)})
    header = read_header(path)
    read = read_tensors(header.tensors)
    assert (header.metadata["general.name"], header.metadata["k"]) == ("n", 3)
    assert all(mx.array_equal(read[name], array) for name, array in arrays.items())


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_follows_the_alignment_that_the_file_states(tmp_path, alignment):
    content = gguf_bytes({"general.alignment": alignment}, TENSORS, alignment=alignment)
    header = header_of(tmp_path, content)
    read = read_tensors(header.tensors)
    assert read["a.weight"].tolist() == np.arange(12.0).reshape(3, 4).tolist()


def test_refuses_a_file_cut_at_any_byte(tmp_path):
    content = gguf_bytes(METADATA, TENSORS)
    for length in range(len(content)):
        assert "GGUF file" in refusal_of(tmp_path, content[:length])


def test_flipped_bits_are_refused_or_lead_to_tensors_inside_the_file(tmp_path):
    content = gguf_bytes(METADATA, TENSORS)
    draw = random.Random(0)
    refused = 0
    for _ in range(2000):
        broken = bytearray(content)
        for _ in range(draw.choice([1, 1, 4])):
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        try:
            header = header_of(tmp_path, bytes(broken))
        except UnsupportedModelError:
            refused += 1
            continue
        mx.eval(read_tensors(header.tensors))
    assert 200 < refused < 2000


def with_count(place, count):
    content = bytearray(gguf_bytes(METADATA, TENSORS))
    content[place : place + 8] = struct.pack("<Q", count)
    return bytes(content)


def of_tensor(name, shape, type_id, n_bytes):
    return gguf_bytes(METADATA, {name: Stored(shape, type_id, bytes(n_bytes))})


def that_share_bytes():
    one = floats(np.zeros((64, 64)))
    content = gguf_bytes({}, {f"t{i}": one if i == 0 else floats([]) for i in range(20)})
    for index in range(1, 20):  # let every empty tensor claim what the first one holds
        at = content.index(string(f"t{index}") + struct.pack("<IQ", 1, 0))
        info = string(f"t{index}") + struct.pack("<IQIQ", 1, 4096, F32, 0)
        content = content[:at] + info + content[at + len(info) :]
    return content


VALUES = [
    Value(8, struct.pack("<Q", 2**62)),
    Value(9, struct.pack("<IQ", 4, 2**62)),
    Value(9, struct.pack("<IQ", 8, 2**62)),
    Value(9, struct.pack("<IQ", 9, 1) + typed(["a"]).raw),
    Value(13, bytes(8)),
]
TWICE = gguf_bytes({"ka": 1, "kb": 2}, {"ta": floats([1.0]), "tb": floats([1.0])})
SHAPES = [((2, 33), Q4_0), ((0, 4), F32), ((), F32), ((1,) * 5, F32)]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (with_count(8, 2**63), "not a whole GGUF file"),  # of tensors
        (with_count(16, 10**6), "not a whole GGUF file"),  # of pairs
        *((gguf_bytes({"k": value}, {}), "not a whole GGUF file") for value in VALUES),
        (of_tensor("a.weight", (1,), 999, 4), "a.weight as type 999"),
        (of_tensor("a.weight", (1, 256), Q8_K, 292), "a.weight as Q8_K; F32, F16, Q4_0, Q4_1,"),
        *((of_tensor("a.weight", *shape, 64), "the tensor a.weight") for shape in SHAPES),
        (of_tensor("a.weight", (2**31 - 1,) * 4, F32, 64), "ends at byte"),
        (of_tensor("a.bias", (32,), Q4_0, 18), "only a weight can be quantised"),
        (that_share_bytes(), "claim"),
        (TWICE.replace(b"kb", b"ka"), "'ka' is in it twice"),
        (TWICE.replace(b"tb", b"ta"), "ta is in it twice"),
        (b"PK\3\4" + bytes(100), "starts with b'PK"),
        (gguf_bytes(METADATA, TENSORS, version=1), "GGUF version 1"),
        (gguf_bytes(METADATA, TENSORS, version=3 << 24), f"GGUF version {3 << 24}"),
        (gguf_bytes({"general.alignment": 0}, TENSORS), "general.alignment"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_fault_of_a_header_is_named(tmp_path, content, named):
    assert named in refusal_of(tmp_path, content)


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
