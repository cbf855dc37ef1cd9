"""PyTorch's files without PyTorch: their tensors, and everything that they must not do."""

import os
import pickle
import zipfile

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.torch_file import read_torch_file
from tests.support.head_folders import (
    ORDERED_DICT,
    save_archive,
    state_dict,
    tensor,
    text,
)
from tests.support.paths import GOLDENS

WRITTEN_BY_TORCH = GOLDENS / "torch_state_dict.pt"


def refusal_of(path) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        read_torch_file(path)
    return str(caught.value)


def hostile(tmp_path, value, **records):
    """A file whose only tensor "w" is made by the given instructions over 24 bytes."""
    content = {"data.pkl": state_dict({"w": value}), "data/0": b"\0" * 24, **records}
    return save_archive(tmp_path / "w.bin", content)


# ---- what is in them -----------------------------------------------------------------------


def test_reads_what_torch_wrote():
    """The file was written by `torch.save` of a module's state dict and some more tensors."""
    tensors = read_torch_file(WRITTEN_BY_TORCH)
    assert set(tensors) == {
        *("float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"),
        *("transposed", "slice", "parameter", "scalar", "empty", "linear.weight", "linear.bias"),
    }
    grid = np.arange(6.0).reshape(2, 3)
    for name in ("float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8"):
        assert str(tensors[name].dtype) == f"mlx.core.{name}"
        np.testing.assert_array_equal(tensors[name].astype(mx.float32), grid)
    assert tensors["bool"].tolist() == [True, False, True]
    np.testing.assert_array_equal(tensors["transposed"], grid.T)
    np.testing.assert_array_equal(tensors["slice"], np.arange(20.0).reshape(4, 5)[1:3, 2:4])
    np.testing.assert_array_equal(tensors["parameter"], [1.5, -2.5])
    assert tensors["scalar"].item() == 7
    assert tensors["empty"].shape == (0, 3)
    np.testing.assert_array_equal(tensors["linear.weight"], np.full((2, 3), 0.25))
    np.testing.assert_array_equal(tensors["linear.bias"], [1, 2])


def test_tensors_may_share_and_repeat_a_storage(tmp_path):
    layouts = {"a": ([6], [1], 0), "b": ([2, 2], [2, 1], 2), "c": ([2, 3], [0, 1], 0)}
    items = {name: tensor("FloatStorage", "0", 6, *layout) for name, layout in layouts.items()}
    records = {"data.pkl": state_dict(items), "data/0": np.arange(6, dtype="<f4").tobytes()}
    tensors = read_torch_file(save_archive(tmp_path / "w.bin", records))
    assert tensors["a"].tolist() == [0, 1, 2, 3, 4, 5]
    assert tensors["b"].tolist() == [[2, 3], [4, 5]]
    assert tensors["c"].tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("protocol", [2, 5])
def test_plain_values_beside_tensors_are_left_out(tmp_path, protocol):
    values = {"a": -2, "b": 2.5, "c": None, "d": True, "e": 10**30, "f": "ü" * 300, "g": 70000}
    program = pickle.dumps(values, protocol)
    assert read_torch_file(save_archive(tmp_path / "w.bin", {"data.pkl": program})) == {}


# ---- what they may not do ------------------------------------------------------------------


class Command:
    def __reduce__(self):
        return os.system, ("touch /nowhere",)


NAMES = ["builtins eval", "torch DoubleStorage", "torch._utils _rebuild_sparse_tensor"]


@pytest.mark.parametrize(
    ("program", "name"),
    [
        *((pickle.dumps({"w": Command()}, protocol), "posix.system") for protocol in (2, 4)),
        *(
            (state_dict({"w": f"c{name.replace(' ', chr(10))}{chr(10)}".encode()}), name)
            for name in NAMES
        ),
    ],
)
def test_anything_else_is_refused_by_its_name_even_if_it_is_not_called(tmp_path, program, name):
    message = refusal_of(save_archive(tmp_path / "w.bin", {"data.pkl": program}))
    assert f"names '{name.replace(' ', '.')}'" in message
    assert "safetensors" in message


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "num_items"),
    [
        ([7], [1], 0, 6),
        ([6], [1], 1, 6),
        ([6], [-1], 5, 6),
        ([-1], [1], 0, 6),
        ([2], [1, 1], 0, 6),
        ([2**62, 4], [0, 0], 0, 6),
        ([1] * 9, [1] * 9, 0, 6),
    ],
)
def test_a_tensor_beyond_its_storage_is_refused(tmp_path, shape, strides, offset, num_items):
    value = tensor("FloatStorage", "0", num_items, shape, strides, offset)
    assert "w.bin" in refusal_of(hostile(tmp_path, value))


def test_tensors_that_share_more_than_the_file_holds_are_refused(tmp_path):
    items = {
        str(start): tensor("ByteStorage", "0", 60_000, [30_000], [1], start) for start in range(200)
    }
    records = {"data.pkl": state_dict(items), "data/0": b"\0" * 60_000}
    assert "its tensors take" in refusal_of(save_archive(tmp_path / "w.bin", records))


def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path):
    value = tensor("ByteStorage", "0", 1 << 28, [1 << 28], [1])
    records = {"data.pkl": state_dict({"w": value}), "data/0": b"\0" * (1 << 20)}
    path = save_archive(tmp_path / "w.bin", records, zipfile.ZIP_DEFLATED)
    assert "is compressed" in refusal_of(path)


FLOATS = {key: tensor("FloatStorage", key, 6, [6], [1]) for key in "05"}


@pytest.mark.parametrize(
    ("value", "records", "named"),
    [
        (FLOATS["0"], {"data/0": b"\0" * 20}, "storage '0'"),  # too small
        (FLOATS["5"], {}, "data/5'"),  # missing
        (FLOATS["0"], {"byteorder": b"big"}, "big-endian"),
        (b"}" + text("w") + FLOATS["0"] + b"s", {}, "'w' is dict, not a tensor"),
    ],
)
def test_a_storage_or_a_tensor_that_cannot_be_read_is_named(tmp_path, value, records, named):
    assert named in refusal_of(hostile(tmp_path, value, **records))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(b"}N" + b"q\0h\0\x86" * 60 + b"Ns.", id="a key of doubled tuples"),
        pytest.param(b"}N" + b"\x85" * 900_000 + b"Ns.", id="a key of a deep tuple"),
        pytest.param(ORDERED_DICT[:-2] + b"]\x85R.", id="a dict made from arguments"),
        pytest.param(ORDERED_DICT[:-2] + b"}b.", id="attributes of a function"),
        pytest.param(tensor("FloatStorage", "0", 6, [6], [1]) + b"}b.", id="of a tensor"),
        pytest.param(b"\x82\x01.", id="an instruction that tensors do not need"),
        pytest.param(b"\x8d" + b"\xff" * 8, id="a text longer than any file"),
        *(b"", b".", b"N", b"(.", b"h\0.", b"u.", b"\x85.", b"Q.", b"\x93.", b"\xff."),
        b"ctorch\nFloatStorage\n" + b"\x85" * 9 + b"Q.",
    ],
)
def test_a_hostile_or_damaged_program_is_refused(tmp_path, program):
    refusal_of(save_archive(tmp_path / "w.bin", {"data.pkl": b"\x80\x02" + program}))


def test_a_file_of_before_torch_1_6_says_what_to_do(tmp_path):
    path = tmp_path / "old.bin"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2))
    assert "PyTorch 1.6 or later" in refusal_of(path)
