"""The memory of a model is computed before it is loaded; a model that does not fit is refused."""

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec import api
from mlxspec.device import memory
from mlxspec.device.packed import Quantization
from mlxspec.drafting.catalogue import model_entry
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.cache import Cache
from mlxspec.loading import LocalModel, Room, load_model
from mlxspec.loading.profile import read_profile, row_bytes
from tests.support.gguf_files import Q4_0, Q4_1, Q5_1, Q8_0, Stored, gguf_name
from tests.support.model_folders import (
    random_model,
    random_weights,
    save_folder,
    save_gguf,
    tiny_config,
)

GB = 1e9


def plain(dtype):
    def write(folder):
        arrays = random_weights(tiny_config()).items()
        weights = {name: mx.array(array).astype(dtype) for name, array in arrays}
        weights["model.norm.weight"] = weights["model.norm.weight"].astype(mx.float32)
        return save_folder(folder, weights=weights)

    return write


def packed(folder, **options):
    model = random_model(tiny_config(**options))
    nn.quantize(model, group_size=32, bits=4)
    halves = [
        (name, array.astype(mx.float16) if array.dtype == mx.float32 else array)
        for name, array in tree_flatten(model.parameters())
    ]
    config = {**tiny_config(**options), "quantization": {"group_size": 32, "bits": 4}}
    return save_folder(folder, config, dict(halves))


def gguf(type_id, block_bytes):
    def write(path):
        tensors = {
            gguf_name(name): Stored(array.shape, type_id, bytes(array.size // 32 * block_bytes))
            for name, array in random_weights(tiny_config()).items()
            if array.ndim > 1
        }
        return save_gguf(path.with_suffix(".gguf"), tensors=tensors)

    return write


def tied(folder):
    """A head beside an embedding that is used in its place."""
    weights = {name: mx.array(array) for name, array in random_weights(tiny_config()).items()}
    return save_folder(folder, tiny_config(tie_word_embeddings=True), weights)


WRITERS = {
    "float32": plain(mx.float32),
    "float16": plain(mx.float16),
    "bfloat16": plain(mx.bfloat16),
    "4-bit": packed,
    "tied": tied,
    "Q4_0": gguf(Q4_0, 18),
    "Q4_1": gguf(Q4_1, 20),
    "Q5_1": gguf(Q5_1, 24),
    "Q8_0": gguf(Q8_0, 34),
}


@pytest.mark.parametrize("working_set", [GB, 0], ids=["gpu", "cpu"])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, "auto") for kind in WRITERS), ("4-bit", "float16"), ("Q5_1", "float32")],
)
def test_what_headers_promise_is_what_the_loaded_weights_take(
    kind, working_set, dtype, machine, tmp_path
):
    machine(working_set)
    path = WRITERS[kind](tmp_path / "tiny")
    assert read_profile(path).weight_bytes(dtype) == load_model(path, dtype=dtype).model.nbytes


@pytest.mark.parametrize("kv_bits", [None, 8, 4])
def test_a_token_needs_the_memory_of_its_rows_in_the_cache(kv_bits, machine, tmp_path):
    machine(GB)
    path = packed(tmp_path / "tiny", head_dim=32)
    model = load_model(path).model
    packing = None if kv_bits is None else Quantization.for_head_dim(kv_bits, 32)
    cache = Cache(2, quantization=packing)
    rows = mx.zeros((1, 2, 256, 32), model.dtype)
    for layer in range(2):
        cache.stage(layer, rows, rows)
    assert row_bytes(model.config, model.dtype.size, kv_bits) * 256 == cache.nbytes


# ---- refusals ------------------------------------------------------------------------------


def refusal(*args, **options):
    with pytest.raises(UnsupportedModelError) as told:
        load_model(*args, **options)
    return str(told.value)


@pytest.mark.parametrize(
    ("kind", "is_gpu"), [("float32", True), ("4-bit", False), ("Q4_0", True), ("Q4_0", False)]
)
def test_load_refuses_what_models_calls_too_large_and_nothing_else(kind, is_gpu, machine, tmp_path):
    path = WRITERS[kind](tmp_path / "tiny")
    machine(GB if is_gpu else 0)
    needed = read_profile(path).memory_bytes(128)
    for spare, fit in ((-8, "too large"), (0, "tight")):
        usable = needed + spare
        machine(usable if is_gpu else 0, 64 * GB if is_gpu else usable)
        entry = model_entry(
            LocalModel(str(path), 1.0, name="tiny", path=path, profile=read_profile(path))
        )
        assert entry.fit_in(memory.usable_gb()) == fit
        if spare:
            assert "choose a smaller model" in refusal(path)
        else:
            load_model(path)


def test_a_refusal_on_a_gpu_names_the_numbers_and_what_to_do(machine, tmp_path):
    path = packed(tmp_path / "tiny", hidden_size=4096, vocab_size=24)
    machine(1e5)
    message = refusal(path)
    weights = read_profile(path).weight_bytes() / GB
    assert message.startswith(f"tiny takes {weights:.1f} GB and 0.0 GB for keys and values of 128")
    assert "; the GPU of this machine recommends at most 0.0 GB: choose a smaller model" in message
    assert "--kv-bits" in message


def test_a_refusal_on_a_cpu_names_the_type_it_computes_in(machine, tmp_path):
    path = packed(tmp_path / "tiny")
    machine(0, memory=1e4)
    assert "as float32, which a CPU computes in, and" in refusal(path)
    assert "as bfloat16, which a CPU computes in, and" in refusal(path, dtype="bfloat16")


def test_nothing_is_read_of_what_does_not_fit(machine, tmp_path, monkeypatch):
    path = packed(tmp_path / "tiny")
    machine(1e4)
    monkeypatch.setattr("mlxspec.loading.load.read_folder", lambda path: pytest.fail("it was read"))
    refusal(path)


def test_a_large_ring_and_a_model_beside_count(machine, tmp_path):
    path = packed(tmp_path / "tiny", head_dim=32)
    machine(GB)
    profile = read_profile(path)
    machine(profile.memory_bytes(5000, kv_bits=8))
    assert "keys and values of 5,001 tokens" in refusal(path, room=Room(5001, kv_bits=8))
    load_model(path, room=Room(5000, kv_bits=8))
    assert "keys and values of 5,000 tokens" in refusal(path, room=Room(5000))
    beside = refusal(path, room=Room(5000, 8, beside=300_000_000))
    assert "tokens, beside 0.3 GB of another model;" in beside


def test_a_draft_model_has_to_fit_beside_its_target(machine, tmp_path):
    path = packed(tmp_path / "tiny")
    machine(GB)
    whole, weights = read_profile(path).memory_bytes(128), read_profile(path).weight_bytes()
    machine(whole + weights - 8)
    with pytest.raises(UnsupportedModelError, match="GB of another model"):
        api.load(path, draft_model=path)
    machine(whole + weights)
    assert api.load(path, draft_model=path).drafter.name == "model"


# ---- the context ---------------------------------------------------------------------------


def test_a_context_ends_where_its_rows_no_longer_fit_on_a_gpu(machine, tmp_path):
    path = packed(tmp_path / "tiny", max_position_embeddings=100_000)
    machine(GB)
    profile = read_profile(path)
    machine(profile.memory_bytes(70_000) + 100)
    told = []
    engine = api.load(path, drafter="none", say=told.append)
    assert engine.context_length == 70_000
    assert told[0].startswith("warning: tiny reads 70,000 of its 100,000 tokens here")
    assert api.load(path, drafter="none", max_kv_size=99, say=told.append).context_length is None
    assert len(told) == 1


@pytest.mark.parametrize("working_set", [GB, 0], ids=["gpu", "cpu"])
def test_a_context_that_fits_is_the_model_s(working_set, machine, tmp_path):
    machine(working_set)
    engine = api.load(packed(tmp_path / "tiny"), drafter="none", say=pytest.fail)
    assert engine.context_length == 128
