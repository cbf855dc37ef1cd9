"""What is said of models and drafters before anything is loaded, and that it comes true."""

import json

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec import api
from mlxspec.budget import CostCurve
from mlxspec.device import backend
from mlxspec.drafting import auto, catalogue
from mlxspec.drafting.catalogue import DrafterFinder, find_model, list_models
from mlxspec.drafting.entries import ModelEntry
from mlxspec.drafting.laps import Evidence
from mlxspec.loading import load_model
from mlxspec.loading.fetch.default_model import default_model_path
from mlxspec.loading.heads.file import fingerprint
from mlxspec.loading.profile import num_weights, read_profile, work_bytes
from mlxspec.models import ModelConfig, build_model
from mlxspec.params import Options
from mlxspec_cli.main import main
from tests.support.drafter_files import medusa_parts, save_drafter
from tests.support.hub_cache import cached_folder, use_hub_cache
from tests.support.machine import trial_of
from tests.support.model_folders import (
    random_model,
    random_weights,
    save_folder,
    save_gguf,
    save_json,
    tiny_config,
)

TEMPLATE = {"chat_template": "{{ messages }}", "eos_token": "<|end|>"}
BIG = tiny_config(num_hidden_layers=4)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "mlxspec.engine.engine.quick_costs", lambda *_: CostCurve({1: 1.0, 32: 2.0})
    )
    return use_hub_cache(tmp_path, monkeypatch)


def quantised(config):
    """The weights of a model in MLX's 4 bits."""
    model = random_model(config)
    nn.quantize(model, group_size=32, bits=4)
    return dict(tree_flatten(model.parameters()))


PACKED = {**tiny_config(), "quantization": {"group_size": 32, "bits": 4}}


def in_bfloat16():
    weights = random_weights(tiny_config())
    return {name: mx.array(array).astype(mx.bfloat16) for name, array in weights.items()}


def chat_folder(hub, repository="org/tiny", config=None, **options):
    folder = save_folder(cached_folder(hub, repository), config, **options)
    save_json(folder / "tokenizer_config.json", TEMPLATE)
    return folder


def entry_of(source):
    return next(entry for entry in list_models() if entry.source == source)


def drafter(target, name):
    return next(entry for entry in DrafterFinder().find(target) if entry.name == name)


# ---- models --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"model_type": "qwen2"},
        {"attention_bias": True, "mlp_bias": True, "num_hidden_layers": 3},
        {"head_dim": 16, "num_key_value_heads": 1},
    ],
)
def test_the_numbers_of_a_model_are_counted_from_its_config(changes):
    config = ModelConfig.from_dict(tiny_config(**changes))
    parameters = tree_flatten(build_model(config).parameters())
    assert num_weights(config) == sum(array.size for _, array in parameters)


def test_a_model_is_described_by_its_headers(hub):
    chat_folder(hub)
    found = entry_of("org/tiny")
    assert (found.name, found.architecture, found.packing) == ("org/tiny", "llama", "float32")
    assert (found.context_length, found.problem, found.is_here) == (128, "", True)


def test_the_memory_is_that_of_weights_and_cache_in_float32_on_a_cpu(hub, monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: True)
    chat_folder(hub, config=tiny_config(max_position_embeddings=8192))
    found = entry_of("org/tiny")
    weights = num_weights(ModelConfig.from_dict(tiny_config()))
    rows = 4096 * 2 * 2 * 2 * 8  # tokens, layers, keys and values, heads, numbers of a head
    work = work_bytes(ModelConfig.from_dict(tiny_config()), 4096, 4)
    assert found.memory_tokens == 4096
    assert found.memory_gb == pytest.approx((4 * (weights + rows) + work) / 1e9)


def test_a_gpu_takes_the_weights_as_they_are_stored(hub, monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    weights = quantised(tiny_config())
    chat_folder(hub, weights=weights, config=PACKED)
    stored = sum(array.nbytes for array in weights.values())
    rows = 128 * 2 * 2 * 2 * 8 * 4  # in the type of the scales, float32
    work = work_bytes(ModelConfig.from_dict(tiny_config()), 128, 4)
    assert entry_of("org/tiny").memory_gb == pytest.approx((stored + rows + work) / 1e9)


@pytest.mark.parametrize(
    ("write", "packing"),
    [
        (lambda folder: save_folder(folder), "float32"),
        (lambda folder: save_folder(folder, PACKED, quantised(tiny_config())), "4-bit"),
        (lambda folder: save_folder(folder, weights=in_bfloat16(), shards=2), "bfloat16"),
        (lambda folder: save_gguf(folder.with_suffix(".gguf")), "float32"),
    ],
    ids=["plain", "quantised", "shards", "gguf"],
)
def test_the_weight_type_is_what_loading_will_call_it(tmp_path, write, packing):
    path = write(tmp_path / "tiny")
    profile = read_profile(path)
    assert profile.packing == packing
    assert catalogue.words_of_loaded(profile.weights) == load_model(path).weights


def test_a_model_that_cannot_be_run_or_cannot_chat_says_why(hub):
    save_json(cached_folder(hub, "org/other") / "config.json", {"model_type": "gemma3"})
    save_folder(cached_folder(hub, "org/base"))
    (chat_folder(hub, "org/head") / "tokenizer.json").unlink()
    torn = chat_folder(hub, "org/torn") / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-8])
    file = save_gguf(cached_folder(hub, "org/files") / "x.gguf", **{"tokenizer.ggml.pre": "odd"})
    assert "gemma3" in entry_of("org/other").problem
    assert "no chat template" in entry_of("org/base").problem
    assert "may be a drafter" in entry_of("org/head").problem
    assert "cut short" in entry_of("org/torn").problem
    assert "'odd'" in entry_of(str(file)).problem


def test_the_default_model_comes_first_and_each_is_found_by_its_name(hub):
    chat_folder(hub)
    first = list_models()[0]
    assert (first.source, first.is_here) == ("default", False)
    assert first.size_gb == pytest.approx(0.093, abs=0.001)
    assert find_model("default") == first
    assert find_model("org/tiny") == entry_of("org/tiny")
    assert find_model("org/elsewhere") is None


@pytest.mark.parametrize(("takes", "fit"), [(6.9, "fits"), (7.1, "tight"), (10.1, "too large")])
def test_a_model_leaves_room_for_the_rest_of_the_machine_or_not(takes, fit):
    assert ModelEntry("x", "x", 1.0, memory_gb=takes).fit_in(10.0) == fit


# ---- drafters ------------------------------------------------------------------------------


def test_trained_drafters_are_there_or_say_how_to_make_them(hub, tmp_path):
    folder = chat_folder(hub)
    loaded = load_model(folder)
    name = fingerprint(loaded.config, loaded.tokenizer)
    path = tmp_path / "home" / "drafters" / "medusa.safetensors"
    save_drafter(path, "medusa", *medusa_parts(), name)
    assert drafter("org/tiny", "medusa").problem == ""
    assert "mlxspec train eagle3" in drafter("org/tiny", "eagle3").problem
    names = [entry.name for entry in DrafterFinder().find("org/tiny")]
    assert names[:2] == ["auto", "medusa"]
    assert set(names[-3:]) == {"model", "eagle3", "exit"}


def test_a_table_that_nobody_trained_begins_with_the_seed_text(hub, tmp_path):
    chat_folder(hub)
    entries = {entry.drafter: entry for entry in DrafterFinder().find("org/tiny")}
    assert "seed text" in entries["pool"].meaning
    assert "seed text" not in entries["suffix"].meaning


def test_a_model_or_a_head_that_cannot_draft_says_why(hub):
    chat_folder(hub, "org/big", BIG)
    chat_folder(hub, "org/small")
    head = chat_folder(hub, "org/head", tiny_config(hidden_size=64))
    (head / "tokenizer.json").unlink()
    tokens = [*"abcdefghijklmnopqrst", "xy", "\u0120", "\u010a", "z", "<|end|>"]
    changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * 24 + [3]}
    save_gguf(cached_folder(hub, "org/files") / "other.gguf", tiny_config(vocab_size=25), **changes)
    assert drafter("org/big", "org/small").problem == ""
    assert drafter("org/small", "org/big").problem == "it is no smaller than the target"
    assert drafter("org/big", "other").problem == "vocabulary of 25, the target's has 24"
    assert drafter("org/big", "org/head").problem == "made for a width of 64, the target's is 32"


def test_the_default_model_drafts_by_its_path(hub):
    chat_folder(hub, "org/big", BIG)
    path = default_model_path()
    path.parent.mkdir(parents=True)
    save_gguf(path)
    assert drafter("org/big", "SmolLM2-135M-Instruct").drafter == str(path)


@pytest.fixture
def timed(monkeypatch):
    """Trials take a second each and give these tokens, by drafter."""
    tokens = {"none": 10, "pool": 20}
    monkeypatch.setattr(
        auto, "short_trial", lambda engine, text, drafter, **_: trial_of(tokens[drafter.name])
    )
    return tokens


def entries_of(source, options=None):
    return {entry.name: entry for entry in DrafterFinder().find(source, options)}


def test_speeds_are_those_that_the_choice_measured_with_the_cache_in_use(hub, timed):
    folder, rotating = chat_folder(hub), Options(max_kv_size=32, depth=3)
    assert drafter("org/tiny", "pool").tokens_per_s is None
    speeds = dict(api.prepare(folder).choice.speeds)
    timed["pool"] = 5
    api.prepare(folder, rotating)
    entries, others = entries_of("org/tiny"), entries_of("org/tiny", rotating)
    assert {name: entries[name].tokens_per_s for name in speeds} == {"none": 10, "pool": 20}
    assert {name: others[name].tokens_per_s for name in speeds} == {"none": 10, "pool": 5}
    assert entries["pool"].is_fastest
    assert entries["auto"].meaning == "the fastest here: pool"
    assert others["none"].is_fastest


def test_an_open_verdict_names_no_fastest_drafter_and_says_what_it_lacks(hub, monkeypatch):
    folder = chat_folder(hub)
    monkeypatch.setattr(auto, "run_laps", lambda *_, **given: Evidence())
    api.prepare(folder)
    entries = entries_of("org/tiny")
    assert not any(entry.is_fastest for entry in entries.values())
    assert entries["auto"].meaning == "pool for now, and measured again: time for 0 of 3 laps"


def test_a_forgotten_verdict_is_measured_by_the_next_load_and_others_stay(hub, timed):
    folder = chat_folder(hub)
    rotating = Options(max_kv_size=32)
    api.prepare(folder)
    api.prepare(folder, rotating)
    DrafterFinder().forget_verdict("org/tiny")
    DrafterFinder().forget_verdict("org/elsewhere")
    timed["pool"] = 5
    assert api.prepare(folder).choice.drafter == "none"
    assert api.prepare(folder, rotating).choice.drafter == "pool"


def test_of_a_model_that_is_not_here_only_untrained_drafters_are_known(hub):
    names = [entry.name for entry in DrafterFinder().find("org/elsewhere")]
    assert names == ["auto", "pool", "suffix", "table", "none"]


# ---- the command ---------------------------------------------------------------------------


def test_the_command_lists_models_and_drafters(hub, capsys):
    chat_folder(hub)
    assert main(["models"]) == 0
    listed = capsys.readouterr().out
    assert "SmolLM2-135M-Instruct (default)  is not here yet" in listed
    assert "llama, float32, context 128" in listed
    assert main(["models", "org/tiny"]) == 0
    assert "none is trained for this model" in capsys.readouterr().out
    assert main(["models", "org/elsewhere"]) == 2
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"][1]["packing"] == "float32"
    assert main(["models", "org/tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drafters"][0]["drafter"] == "auto"
