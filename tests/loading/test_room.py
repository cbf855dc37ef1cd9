"""The memory of a model is told from headers before it is loaded; what does not fit is refused.

The model may be of a port of ours or run by mlx-lm, in a folder or in a GGUF file.
"""

import gc
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec import api
from mlxspec.adapted.config import Admission
from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend, memory
from mlxspec.device.packed import Quantization
from mlxspec.drafting.catalogue import model_entry
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.cache import Cache, make_cache
from mlxspec.loading import LocalModel, Room, load, load_model, mlx_lm, room
from mlxspec.loading.fetch.models import describe_model
from mlxspec.loading.ports import stated_config
from mlxspec.loading.profile import cache_bytes, read_profile, row_bytes
from mlxspec.params import Options
from mlxspec_cli.commands import models
from tests.support import zoo
from tests.support.gguf_files import Q4_0, Q4_1, Q5_1, Q8_0, Stored, gguf_name
from tests.support.gguf_models import BASE, write
from tests.support.gguf_models import random_model as gguf_model
from tests.support.model_folders import (
    random_model,
    random_weights,
    save_folder,
    save_gguf,
    tiny_config,
)
from tests.support.pairwise import pairwise
from tests.support.qwen3_folder import QWEN3, save_foreign
from tests.support.tiny import tiny_model

GB = 1e9
IO = Path("/proc/self/io")


@pytest.fixture(autouse=True)
def is_not_examined(home, monkeypatch):
    """Sizes are of interest here, and exactness is not."""
    monkeypatch.setattr(mlx_lm, "examine", lambda *_: Admission("tree", "", 0.0, 0.0, True))


def plain(dtype):
    def save(folder):
        arrays = random_weights(tiny_config()).items()
        weights = {name: mx.array(array).astype(dtype) for name, array in arrays}
        weights["model.norm.weight"] = weights["model.norm.weight"].astype(mx.float32)
        return save_folder(folder, weights=weights)

    return save


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
    def save(path):
        tensors = {
            gguf_name(name): Stored(array.shape, type_id, bytes(array.size // 32 * block_bytes))
            for name, array in random_weights(tiny_config()).items()
            if array.ndim > 1
        }
        return save_gguf(path.with_suffix(".gguf"), tensors=tensors)

    return save


def tied(folder):
    """A head beside an embedding that is used in its place."""
    weights = {name: mx.array(array) for name, array in random_weights(tiny_config()).items()}
    return save_folder(folder, tiny_config(tie_word_embeddings=True), weights)


def foreign(**options):
    return lambda folder: save_foreign(folder, **options)


def foreign_gguf(kind):
    def save(path):
        config = BASE | {"model_type": "qwen3", "intermediate_size": 256}
        items, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
        raw = np.zeros((32, 256 // items * n_bytes), np.uint8), GGMLQuantizationType[kind]
        blocks = {f"model.layers.{layer}.mlp.down_proj.weight": raw for layer in range(2)}
        return write(path.with_suffix(".gguf"), config, gguf_model(config), {}, packed=blocks)

    return save


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
    "qwen3": foreign(),
    "qwen3, bfloat16": foreign(dtype=mx.bfloat16),
    "qwen3, 4-bit": foreign(bits=4, dtype=mx.float16),
    "qwen3, 8-bit, tied": foreign(bits=8, dtype=mx.bfloat16, tie_word_embeddings=True),
    "qwen3, Q8_0": foreign_gguf("Q8_0"),
    "qwen3, Q6_K": foreign_gguf("Q6_K"),
}


@pairwise(kind=list(WRITERS), dtype=["auto", "float16"], is_gpu=[True, False])
def test_what_headers_promise_is_what_the_loaded_weights_take(
    kind, dtype, is_gpu, machine, tmp_path
):
    machine(GB if is_gpu else 0)
    path = WRITERS[kind](tmp_path / "tiny")
    assert read_profile(path).weight_bytes(dtype) == load_model(path, dtype=dtype).model.nbytes


def test_a_head_that_is_tied_and_eyes_need_no_memory(machine, tmp_path):
    machine(GB)
    names = ["lm_head.weight", "vision_tower.patches.weight", "rotary_emb.inv_freq"]
    tied = {"tie_word_embeddings": True}
    plain = save_foreign(tmp_path / "plain", **tied)
    more = save_foreign(tmp_path / "more", extra={n: mx.zeros((24, 32)) for n in names}, **tied)
    assert read_profile(more).weight_bytes() == read_profile(plain).weight_bytes()


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


@pytest.mark.parametrize("kind", ["nanbeige", "mimo_v2_flash", "gemma4_text", "qwen3_5"])
def test_keys_of_layers_of_two_kinds_and_of_loops_stay_within_what_the_config_says(kind):
    stated = stated_config({**zoo.SETTINGS[kind], "model_type": kind})
    assert stated.kv_numbers >= AdaptedModel.of(zoo.build(kind)).config.kv_numbers > 0


def test_recurrent_layers_have_no_keys_and_compressed_ones_are_not_known():
    kinds = ["linear_attention", "full_attention"]
    assert stated_config(QWEN3 | {"layer_types": kinds}).kv_numbers == 2 * 2 * 8
    assert stated_config(QWEN3 | {"kv_lora_rank": 16}).kv_numbers == 0
    inner = {"model_type": "gemma3", "text_config": QWEN3 | {"model_type": "gemma3_text"}}
    assert stated_config(inner).kv_numbers == 2 * 2 * 2 * 8


def test_a_longer_text_fits_where_layers_hold_a_window_of_it(machine):
    model = AdaptedModel(zoo.build("gpt_oss"))
    decoder = Decoder(model)
    decoder.observe(zoo.text_of(1024))
    taken = cache_bytes(model.config, 1024, 4)
    assert decoder.cache.nbytes <= taken < 0.8 * 1024 * row_bytes(model.config, 4)
    assert cache_bytes(model.config, 100, 4) == 100 * row_bytes(model.config, 4)
    machine(1)
    needed = room.bytes_to_read(model, 1024)
    assert needed > model.nbytes + taken
    for usable, fits in ((needed, 1024), (needed - 1, 1023), (model.nbytes, 0)):
        machine(usable)
        assert room.context_that_fits(model) == fits


# ---- the peak ------------------------------------------------------------------------------

WIDE = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8, "head_dim": 32}
WIDE |= {"num_key_value_heads": 4, "num_hidden_layers": 4, "max_position_embeddings": 4096}
MOE = {"num_experts": 8, "num_experts_per_tok": 8, "num_hidden_layers": 2, "intermediate_size": 64}
THIN = {"hidden_size": 64, "intermediate_size": 64, "num_key_value_heads": 8}
PEAKS = {
    "llama": (lambda: tiny_model(**WIDE), {}),
    "a wide MLP": (lambda: tiny_model(**WIDE | {"intermediate_size": 4096}), {}),
    "many heads": (lambda: tiny_model(**WIDE | {"num_attention_heads": 16}), {}),
    "many rows": (lambda: tiny_model(**WIDE | THIN | {"num_hidden_layers": 16}), {}),
    "8-bit rows": (lambda: tiny_model(**WIDE), {"kv_bits": 8}),
    "qwen3": (lambda: adapted("qwen3", WIDE), {}),
    "experts": (lambda: adapted("qwen3_moe", WIDE | MOE | {"moe_intermediate_size": 256}), {}),
    "narrow experts": (
        lambda: adapted(
            "qwen3_moe", WIDE | MOE | {"hidden_size": 512, "moe_intermediate_size": 64}
        ),
        {},
    ),
    "windows": (lambda: adapted("gemma3_text", WIDE | {"sliding_window": 512}), {}),
    "states": (lambda: adapted("qwen3_5", {"text_config": TEXT | WIDE}), {}),
}
TEXT = zoo.SETTINGS["qwen3_5"]["text_config"]


def adapted(kind, changes):
    return AdaptedModel(zoo.build(kind, **changes))


@pytest.mark.skipif(not backend.lacks_accelerate(), reason="the multiples are those of this CPU")
@pytest.mark.parametrize(
    ("kind", "num_tokens"),
    [*((kind, 1024) for kind in PEAKS), ("llama", 100), ("llama", 300), ("qwen3", 300)],
)
def test_the_peak_of_reading_a_text_is_told_within_a_tenth(kind, num_tokens):
    make, kept = PEAKS[kind]
    model = make()
    decoder = Decoder(model, make_cache(model.config, Options(**kept)))
    gc.collect()  # models of other tests
    others = mx.get_active_memory() - model.nbytes
    mx.reset_peak_memory()
    decoder.observe([3] * num_tokens)
    peak = mx.get_peak_memory() - others
    told = room.bytes_to_read(model, num_tokens, **kept)
    assert told == pytest.approx(peak, rel=0.1)


# ---- refusals ------------------------------------------------------------------------------


def refusal(*args, **options):
    with pytest.raises(UnsupportedModelError) as told:
        load_model(*args, **options)
    return str(told.value)


@pytest.mark.parametrize(
    ("kind", "is_gpu"),
    [("float32", True), ("4-bit", False), ("Q4_0", True), ("qwen3, 4-bit", True), ("qwen3", False)],
)
def test_load_refuses_what_models_calls_too_large_and_nothing_else(kind, is_gpu, machine, tmp_path):
    path = WRITERS[kind](tmp_path / "tiny")
    machine(GB if is_gpu else 0)
    profile = read_profile(path)
    needed = profile.memory_bytes(min(512, profile.config.max_position_embeddings))
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
    machine(1)
    profile = read_profile(path)
    weights, needed = profile.weight_bytes(), profile.memory_bytes(128)
    machine(needed - weights // 2)
    message = refusal(path)
    assert message.startswith(f"tiny takes {weights / GB:.1f} GB and 0.0 GB to read 128 tokens; ")
    assert "; the GPU of this machine recommends at most 0.0 GB: choose a smaller model" in message
    bits = 8 * (weights - weights // 2) / profile.num_weights
    assert message.endswith(f"fits with less than {bits:.1f} bits a weight")


@pytest.mark.parametrize(
    ("own", "tokens", "bits", "advice"),
    [
        ({}, 4096, 8, "--kv-bits 8"),
        ({}, 4096, 4, "--kv-bits 4"),
        ({}, 1512, None, "--max-kv-size 1000"),
        ({"kv_bits": 4}, 1512, 4, "--max-kv-size 1000"),
        ({"max_kv_size": 9_000}, 1512, None, "--max-kv-size 1000"),
    ],
)
def test_what_a_refusal_advises_fits_and_no_more_does(own, tokens, bits, advice, machine, tmp_path):
    path = packed(tmp_path / "tiny", head_dim=32, max_position_embeddings=8192)
    machine(GB)
    machine(read_profile(path).memory_bytes(tokens, kv_bits=bits))  # rows beside a ring: a forward
    message = refusal(path, room=Room(**own))
    assert f"choose a smaller model; {advice} fits" in message
    number = int(message.split()[-2])
    name = {"--kv-bits": "kv_bits", "--max-kv-size": "max_kv_size"}[message.split()[-3]]
    load_model(path, room=Room(**own | {name: number}))
    more = {8: None, 4: 8}[number] if name == "kv_bits" else number + 1
    refusal(path, room=Room(**own | {name: more}))


def test_a_refusal_on_a_cpu_names_the_type_it_computes_in(machine, tmp_path):
    path = packed(tmp_path / "tiny")
    machine(0, memory=1e4)
    assert "as float32, which a CPU computes in, and" in refusal(path)
    assert "as bfloat16, which a CPU computes in, and" in refusal(path, dtype="bfloat16")


@pytest.mark.parametrize("reader", ["read_folder", "import_module"])
def test_nothing_is_read_of_what_does_not_fit(reader, machine, tmp_path, monkeypatch):
    path = packed(tmp_path / "tiny") if reader == "read_folder" else save_foreign(tmp_path / "tiny")
    machine(1e4)
    monkeypatch.setattr(load, reader, lambda name: pytest.fail("it was read"))
    assert "choose a smaller model" in refusal(path)


def test_keys_that_no_config_tells_of_are_named_in_a_refusal(machine, tmp_path):
    path = save_foreign(tmp_path / "tiny", kv_lora_rank=8)
    machine(1e4)
    assert "keys and values, whose size is known once it is built; " in refusal(path)
    entry = model_entry(describe_model(path, "tiny", "tiny"))
    assert (entry.memory_tokens, entry.is_bound) == (0, True)
    assert "takes at most 0.0 of 0.0 GB memory without keys and values" in models._model_text(entry)


def test_a_large_ring_and_a_model_beside_count(machine, tmp_path):
    path = packed(tmp_path / "tiny", head_dim=32)
    machine(GB)
    profile = read_profile(path)
    machine(profile.memory_bytes(5512, kv_bits=8))
    assert "to read 5,001 tokens" in refusal(path, room=Room(5001, kv_bits=8))
    load_model(path, room=Room(5000, kv_bits=8))
    assert "to read 5,000 tokens" in refusal(path, room=Room(5000))
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


# ---- what fits -----------------------------------------------------------------------------


def test_a_large_model_is_announced_with_what_it_takes(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "_SAID_FROM", 1)
    machine(2 * GB)
    lines = []
    load_model(save_foreign(tmp_path / "tiny", bits=4), say=lines.append)
    assert lines[0] == ("tiny takes at most 0.0 GB and 0.0 GB to read 512 tokens, of 2.0 GB")


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


@pytest.mark.skipif(not IO.exists(), reason="the bytes that a process reads are counted by Linux")
def test_weights_are_read_once(machine, tmp_path):
    machine(0)
    path = save_foreign(tmp_path / "tiny", intermediate_size=9_216)
    size = (path / "model.safetensors").stat().st_size
    load_model(save_foreign(tmp_path / "other"))  # whatever is imported is read before
    before = _bytes_read()
    load_model(path)
    assert size <= _bytes_read() - before < 1.2 * size


def _bytes_read():
    return int(IO.read_text().split()[1])  # rchar
