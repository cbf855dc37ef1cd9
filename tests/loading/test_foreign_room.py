"""The memory of a model that mlx-lm runs is told from headers, and too much of it is refused."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from mlx_lm.utils import MODEL_REMAPPING

from mlxspec.adapted.config import Admission
from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafting.catalogue import model_entry
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.cache import Cache
from mlxspec.loading import LocalModel, Room, load, load_model, mlx_lm, room
from mlxspec.loading.fetch.models import describe_model
from mlxspec.loading.ports import is_runnable, stated_config
from mlxspec.loading.profile import cache_bytes, read_profile, row_bytes
from mlxspec_cli.commands import models
from tests.support import zoo
from tests.support.gguf_models import BASE, write
from tests.support.gguf_models import random_model as gguf_model
from tests.support.model_folders import save_json
from tests.support.qwen3_folder import QWEN3, save_foreign

GB = 1e9
IO = Path("/proc/self/io")
KINDS = {
    "float32": {},
    "bfloat16": {"dtype": mx.bfloat16},
    "4-bit": {"bits": 4, "dtype": mx.float16},
    "8-bit": {"bits": 8, "dtype": mx.bfloat16, "tie_word_embeddings": True},
}


@pytest.fixture(autouse=True)
def is_not_examined(home, monkeypatch):
    """Sizes are of interest here, and exactness is not."""
    monkeypatch.setattr(mlx_lm, "examine", lambda *_: Admission("tree", "", 0.0, 0.0, True))


def refusal(*args, **options):
    with pytest.raises(UnsupportedModelError) as told:
        load_model(*args, **options)
    return str(told.value)


@pytest.mark.parametrize("dtype", ["auto", "float16"])
@pytest.mark.parametrize("working_set", [GB, 0], ids=["gpu", "cpu"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_headers_promise_is_what_the_loaded_weights_take(
    kind, working_set, dtype, machine, tmp_path
):
    machine(working_set)
    path = save_foreign(tmp_path / "tiny", **KINDS[kind])
    assert read_profile(path).weight_bytes(dtype) == load_model(path, dtype=dtype).model.nbytes
    assert read_profile(path).weights == kind


def test_a_head_that_is_tied_and_eyes_need_no_memory(machine, tmp_path):
    machine(GB)
    names = ["lm_head.weight", "vision_tower.patches.weight", "rotary_emb.inv_freq"]
    tied = {"tie_word_embeddings": True}
    plain = save_foreign(tmp_path / "plain", **tied)
    more = save_foreign(tmp_path / "more", extra={n: mx.zeros((24, 32)) for n in names}, **tied)
    assert read_profile(more).weight_bytes() == read_profile(plain).weight_bytes()


def test_keys_and_values_are_bounded_by_the_config(machine, tmp_path):
    machine(GB)
    model = load_model(path := save_foreign(tmp_path / "tiny")).model
    cache = Cache.for_model(model.config)
    rows = mx.zeros((1, 2, 256, 8), model.dtype)
    for layer in range(2):
        cache.stage(layer, rows, rows)
    profile = read_profile(path)
    assert profile.memory_bytes(256) - profile.weight_bytes() == cache.nbytes
    assert row_bytes(profile.config, 4) == row_bytes(model.config, 4)


@pytest.mark.parametrize("kind", ["nanbeige", "mimo_v2_flash", "gemma4_text", "qwen3_5"])
def test_layers_of_two_kinds_and_loops_stay_within_the_bound(kind):
    stated = stated_config({**zoo.SETTINGS[kind], "model_type": kind})
    assert stated.kv_numbers >= AdaptedModel.of(zoo.build(kind)).config.kv_numbers > 0


@pytest.mark.parametrize("kind", ["gpt_oss", "gemma3_text"])
def test_a_longer_text_fits_where_layers_hold_a_window_of_it(kind, machine):
    model = AdaptedModel(zoo.build(kind))
    decoder = Decoder(model)
    decoder.observe(zoo.text_of(1024))
    taken = cache_bytes(model.config, 1024, 4)
    assert decoder.cache.nbytes <= taken < 0.8 * 1024 * row_bytes(model.config, 4)
    assert cache_bytes(model.config, 100, 4) == 100 * row_bytes(model.config, 4)
    machine(model.nbytes + taken)
    assert room.context_that_fits(model) == 1024
    machine(model.nbytes + taken - 1)
    assert room.context_that_fits(model) == 1023
    machine(model.nbytes)
    assert room.context_that_fits(model) == 0


def test_recurrent_layers_have_no_keys_and_compressed_ones_are_not_known():
    kinds = ["linear_attention", "full_attention"]
    assert stated_config(QWEN3 | {"layer_types": kinds}).kv_numbers == 2 * 2 * 8
    assert stated_config(QWEN3 | {"kv_lora_rank": 16}).kv_numbers == 0
    inner = {"model_type": "gemma3", "text_config": QWEN3 | {"model_type": "gemma3_text"}}
    assert stated_config(inner).kv_numbers == 2 * 2 * 2 * 8


@pytest.mark.parametrize("is_gpu", [True, False])
def test_load_refuses_what_models_calls_too_large_and_nothing_else(is_gpu, machine, tmp_path):
    path = save_foreign(tmp_path / "tiny", bits=4)
    machine(GB if is_gpu else 0)
    needed = read_profile(path).memory_bytes(512)
    for spare, fit in ((-8, "too large"), (0, "tight")):
        usable = needed + spare
        machine(usable if is_gpu else 0, 64 * GB if is_gpu else usable)
        entry = model_entry(LocalModel(str(path), 1.0, path=path, profile=read_profile(path)))
        assert entry.fit_in(usable / GB) == fit
        if spare:
            assert "tiny takes at most 0.0 GB" in (said := refusal(path))
            assert "for keys and values of 512 tokens; " in said
        else:
            load_model(path)


def test_nothing_is_read_of_what_does_not_fit(machine, tmp_path, monkeypatch):
    path = save_foreign(tmp_path / "tiny")
    machine(1e4)
    monkeypatch.setattr(load, "import_module", lambda name: pytest.fail("mlx-lm was asked"))
    assert "choose a smaller model" in refusal(path)
    assert "tokens, beside 0.5 GB of another" in refusal(path, room=Room(9, beside=500_000_000))


def test_keys_that_no_config_tells_of_are_named_in_a_refusal(machine, tmp_path):
    path = save_foreign(tmp_path / "tiny", kv_lora_rank=8)
    machine(1e4)
    assert "keys and values, whose size is known once it is built; " in refusal(path)
    entry = model_entry(describe_model(path, "tiny", "tiny"))
    assert (entry.memory_tokens, entry.is_bound) == (0, True)
    assert "takes at most 0.0 of 0.0 GB memory without keys and values" in models._model_text(entry)


def test_a_large_model_is_announced_with_what_it_takes(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "_SAID_FROM", 1)
    machine(2 * GB)
    lines = []
    load_model(save_foreign(tmp_path / "tiny", bits=4), say=lines.append)
    assert lines[0] == (
        "tiny takes at most 0.0 GB and 0.0 GB for keys and values of 512 tokens, of 2.0 GB"
    )


@pytest.mark.skipif(not IO.exists(), reason="the bytes that a process reads are counted by Linux")
@pytest.mark.parametrize("bits", [0, 4])
def test_weights_are_read_once(bits, machine, tmp_path):
    machine(0)
    path = save_foreign(tmp_path / "tiny", intermediate_size=9_216, bits=bits)
    size = (path / "model.safetensors").stat().st_size
    load_model(save_foreign(tmp_path / "other"))  # whatever is imported is read before
    before = _bytes_read()
    load_model(path)
    assert size <= _bytes_read() - before < 1.2 * size


def _bytes_read():
    return int(IO.read_text().split()[1])  # rchar


def test_types_of_mlx_lm_are_runnable_and_other_words_are_not():
    assert MODEL_REMAPPING
    assert all(map(is_runnable, ["llama", "qwen3", "solar_open", "gemma3_text", *MODEL_REMAPPING]))
    words = ["cache", "base", "../models/qwen3", "no_such", "", 7, None]
    assert not any(map(is_runnable, words))


@pytest.mark.parametrize("setting", ["draft_vocab_size", "eagle_config", "medusa_num_heads"])
def test_a_head_for_such_a_model_is_no_model(setting, machine, tmp_path):
    path = save_foreign(tmp_path / "head", **{setting: 5})
    assert "may be a drafter" in describe_model(path, "head", "head").problem


def test_a_type_that_nobody_has_is_refused_in_the_list(tmp_path):
    path = save_foreign(tmp_path / "odd")
    save_json(path / "config.json", QWEN3 | {"model_type": "odd"})
    assert "mlx-lm has no such type" in describe_model(path, "odd", "odd").problem


@pytest.mark.parametrize("dtype", ["auto", "float16"])
@pytest.mark.parametrize("working_set", [GB, 0], ids=["gpu", "cpu"])
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q6_K"])
def test_a_gguf_file_promises_what_its_loaded_weights_take(
    kind, working_set, dtype, machine, tmp_path
):
    machine(working_set)
    config = BASE | {"model_type": "qwen3", "intermediate_size": 256}
    model = gguf_model(config)
    packed = {}
    if kind != "F32":
        for name in (f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(2)):
            items, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
            raw = np.zeros((32, 256 // items * n_bytes), np.uint8)
            packed[name] = (raw, GGMLQuantizationType[kind])
    path = write(tmp_path / "tiny.gguf", config, model, {}, packed=packed)
    loaded = load_model(path, dtype=dtype).model
    assert read_profile(path).weight_bytes(dtype) == loaded.nbytes
    entry = model_entry(describe_model(path, "m", "m"))
    assert (entry.architecture, entry.drafts, entry.is_bound) == ("qwen3", "draft trees", True)
