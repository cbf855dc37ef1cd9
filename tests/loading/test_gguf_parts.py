"""A model in several GGUF files, as llama.cpp splits it, against the same model in memory."""

import shutil
import struct

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.loading import load_model
from mlxspec.loading.profile import read_profile
from tests.loading.test_gguf import logits_of, refusal_of, tiny_file
from tests.support.gguf_files import Value, gguf_bytes, tiny_config, tiny_metadata
from tests.support.model_folders import gguf_tensors, random_model, random_weights


def part_of(folder, number, count):
    return folder / f"m-{number:05}-of-{count:05}.gguf"


def save_parts(folder, counts):
    """Split a tiny model as llama-gguf-split does; the first part has all metadata."""
    config, first = tiny_config(), 0
    tensors, metadata = gguf_tensors(config), tiny_metadata(config)
    names = list(tensors)
    for number, count in enumerate([*counts, len(names)], 1):
        number_type, total = Value(2, struct.pack("<H", number - 1)), len(counts) + 1
        stated = {"split.no": number_type, "split.count": Value(2, struct.pack("<H", total))}
        held = {name: tensors[name] for name in names[first : first + count]}
        part_of(folder, number, total).write_bytes(gguf_bytes({**metadata, **stated}, held))
        metadata, first = {}, first + count
    return config


@pytest.mark.parametrize("counts", [[10], [0], [4, 5]], ids=["two", "the first empty", "three"])
def test_parts_are_one_model_whichever_is_given(tmp_path, counts):
    config, total = save_parts(tmp_path, counts), len(counts) + 1
    expected = logits_of(random_model(config))
    for number in range(1, total + 1):
        path = part_of(tmp_path, number, total)
        assert mx.array_equal(logits_of(load_model(path).model), expected)
        assert read_profile(path).num_floats == sum(map(np.size, random_weights(config).values()))


def test_the_part_that_is_missing_is_named(tmp_path):
    save_parts(tmp_path, [4, 5])
    part_of(tmp_path, 2, 3).unlink()
    for number in (1, 3):
        message = refusal_of(part_of(tmp_path, number, 3))
        assert "is one of 3 parts of a model, and m-00002-of-00003.gguf is not there" in message
        assert "llama-gguf-split --merge" in message


def test_a_part_of_another_name_is_refused_as_a_part(tmp_path):
    save_parts(tmp_path, [4])
    path = part_of(tmp_path, 1, 2).rename(tmp_path / "model.gguf")
    assert "is one of several parts of a model (split.count is 2)" in refusal_of(path)


@pytest.mark.parametrize("other", ["no part", "the same tensors"])
def test_files_that_are_not_parts_of_one_model_are_refused(tmp_path, other):
    save_parts(tmp_path, [4])
    if other == "no part":
        part_of(tmp_path, 2, 2).write_bytes(gguf_bytes({}, {}))
    else:
        shutil.copy(part_of(tmp_path, 1, 2), part_of(tmp_path, 2, 2))
    assert "are not parts of one model" in refusal_of(part_of(tmp_path, 1, 2))


@pytest.mark.parametrize("count", [2**40, -1, 2.5, "2", [2]])
def test_a_count_of_parts_that_cannot_be_is_refused(tmp_path, count):
    value = Value(11, struct.pack("<q", count)) if isinstance(count, int) else count
    path = tiny_file(tmp_path, **{"split.count": value}).rename(tmp_path / "m-00001-of-00002.gguf")
    assert "its name does not end in" in refusal_of(path)
