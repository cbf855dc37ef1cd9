"""The header of a GGUF file: all of its values are read, and none is trusted."""

import random
import struct

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf.file import read_tensors
from mlxspec.loading.gguf.header import read_header
from tests.support.gguf_files import (
    F16,
    F32,
    IQ2_XXS,
    Q4_0,
    Q4_K,
    Q8_K,
    Stored,
    Value,
    floats,
    gguf_bytes,
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


def test_reads_every_kind_of_value(tmp_path):
    header = header_of(tmp_path, gguf_bytes(METADATA, TENSORS))
    assert header.metadata == METADATA


def test_reads_a_64_bit_float(tmp_path):
    values = {"x": Value(12, struct.pack("<d", 1.25)), "y": 7}
    assert header_of(tmp_path, gguf_bytes(values, {})).metadata == {"x": 1.25, "y": 7}


def test_reads_shapes_rows_first(tmp_path):
    tensors = header_of(tmp_path, gguf_bytes(METADATA, TENSORS)).tensors
    assert {name: info.shape for name, info in tensors.items()} == {
        "a.weight": (3, 4),
        "q.weight": (2, 32),
        "k.weight": (1, 256),
        "i.weight": (2, 256),
        "h.weight": (5,),
    }


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


@pytest.mark.parametrize("place", [8, 16], ids=["tensors", "pairs"])
@pytest.mark.parametrize("count", [2**63, 2**40, 10**6])
def test_refuses_counts_that_cannot_fit(tmp_path, place, count):
    content = bytearray(gguf_bytes(METADATA, TENSORS))
    content[place : place + 8] = struct.pack("<Q", count)
    assert "not a whole GGUF file" in refusal_of(tmp_path, bytes(content))


@pytest.mark.parametrize(
    "value",
    [
        Value(8, struct.pack("<Q", 2**62)),
        Value(9, struct.pack("<IQ", 4, 2**62)),
        Value(9, struct.pack("<IQ", 4, 2**40)),
        Value(9, struct.pack("<IQ", 8, 2**62)),
        Value(9, struct.pack("<IQ", 9, 1) + typed(["a"]).raw),
        Value(13, bytes(8)),
    ],
    ids=["string", "array", "wide array", "strings", "array of arrays", "unknown type"],
)
def test_refuses_a_value_that_cannot_be_read(tmp_path, value):
    assert "not a whole GGUF file" in refusal_of(tmp_path, gguf_bytes({"k": value}, {}))


def test_names_a_tensor_type_it_cannot_read(tmp_path):
    tensors = {"blk.0.ffn_up.weight": Stored((1, 256), Q8_K, bytes(292))}
    message = refusal_of(tmp_path, gguf_bytes(METADATA, tensors))
    assert "blk.0.ffn_up.weight as Q8_K; F32, F16, Q4_0, Q4_1, Q5_0," in message
    assert "IQ1_M, BF16, TQ1_0, TQ2_0, MXFP4" in message
    assert "can be read: choose such a file" in message


def test_names_the_number_of_an_unknown_tensor_type(tmp_path):
    tensors = {"a.weight": Stored((1,), 999, bytes(4))}
    assert "a.weight as type 999" in refusal_of(tmp_path, gguf_bytes(METADATA, tensors))


@pytest.mark.parametrize(
    ("shape", "type_id"), [((2, 33), Q4_0), ((0, 4), F32), ((), F32), ((1,) * 5, F32)]
)
def test_refuses_impossible_shapes(tmp_path, shape, type_id):
    tensors = {"a.weight": Stored(shape, type_id, bytes(64))}
    assert "the tensor a.weight" in refusal_of(tmp_path, gguf_bytes(METADATA, tensors))


def test_refuses_a_product_of_dimensions_beyond_64_bits(tmp_path):
    tensors = {"a.weight": Stored((2**31 - 1,) * 4, F32, bytes(64))}
    assert "ends at byte" in refusal_of(tmp_path, gguf_bytes(METADATA, tensors))


def test_refuses_tensors_that_share_their_bytes(tmp_path):
    one = floats(np.zeros((64, 64)))
    content = gguf_bytes({}, {f"t{i}": one if i == 0 else floats([]) for i in range(20)})
    for index in range(1, 20):  # let every empty tensor claim what the first one holds
        at = content.index(string(f"t{index}") + struct.pack("<IQ", 1, 0))
        info = string(f"t{index}") + struct.pack("<IQIQ", 1, 4096, F32, 0)
        content = content[:at] + info + content[at + len(info) :]
    assert "claim" in refusal_of(tmp_path, content)


def test_refuses_a_name_that_stands_twice(tmp_path):
    content = gguf_bytes({"ka": 1, "kb": 2}, {"ta": floats([1.0]), "tb": floats([1.0])})
    assert "'ka' is in it twice" in refusal_of(tmp_path, content.replace(b"kb", b"ka"))
    assert "ta is in it twice" in refusal_of(tmp_path, content.replace(b"tb", b"ta"))


def test_the_error_shows_the_first_bytes_of_a_file_of_another_kind(tmp_path):
    assert "starts with b'PK" in refusal_of(tmp_path, b"PK\3\4" + bytes(100))


@pytest.mark.parametrize("version", [1, 4, 3 << 24])
def test_refuses_versions_it_does_not_know(tmp_path, version):
    content = gguf_bytes(METADATA, TENSORS, version=version)
    assert f"GGUF version {version}" in refusal_of(tmp_path, content)


@pytest.mark.parametrize("alignment", [0, "32"])
def test_refuses_an_impossible_alignment(tmp_path, alignment):
    content = gguf_bytes({"general.alignment": alignment}, TENSORS)
    assert "general.alignment" in refusal_of(tmp_path, content)


def test_refuses_a_quantised_bias(tmp_path):
    tensors = {"a.bias": Stored((32,), Q4_0, bytes(18))}
    assert "only a weight can be quantised" in refusal_of(tmp_path, gguf_bytes({}, tensors))
