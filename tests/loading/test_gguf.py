"""GGUF files as checkpoints: blocks by their formulas, row order by logits, config by metadata."""

import math
import shutil
import struct

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.adapted.config import Admission
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import load_model, mlx_lm
from mlxspec.loading.fetch.models import describe_model
from mlxspec.loading.gguf.file import read_gguf, read_tensors
from mlxspec.loading.gguf.header import read_header
from mlxspec.loading.profile import read_profile
from tests.support.gguf_files import (
    Q4_1,
    Q8_0,
    Stored,
    Value,
    as_llama_cpp_stores,
    floats,
    gguf_bytes,
    random_blocks,
    tiny_config,
    tiny_metadata,
)
from tests.support.model_folders import gguf_tensors, random_model, random_weights, save_gguf
from tests.support.tiny import text_logits

TOKENS = [1, 5, 3, 20, 0, 7]


def logits_of(model):
    return text_logits(model, TOKENS)


def tiny_file(tmp_path, *, config=None, add=None, **changes):
    return save_gguf(tmp_path / "tiny.gguf", config, tensors=add, **changes)


def refusal_of(path) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        load_model(path)
    return str(caught.value)


# ---- models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_a_converted_model_has_the_logits_of_the_original(tmp_path, family, tied):
    config = tiny_config(family, tie_word_embeddings=tied)
    loaded = load_model(tiny_file(tmp_path, config=config))
    assert mx.array_equal(logits_of(loaded.model), logits_of(random_model(config)))


@pytest.mark.parametrize("port", ["own", "mlx-lm"])
def test_the_header_is_read_once(tmp_path, home, monkeypatch, port):
    reads = []
    monkeypatch.setattr(mlx_lm, "examine", lambda *_: Admission("tree", "", 0.0, 0.0))
    monkeypatch.setattr(
        "mlxspec.loading.load.read_header", lambda path: reads.append(path) or read_header(path)
    )
    path = tiny_file(tmp_path)
    load_model(path, port=port)
    assert reads == [path]


def test_quantised_rows_go_back_as_plain_ones_do(tmp_path):
    config = tiny_config()
    _, _, raw = random_blocks(32, 2, 16)
    path = tiny_file(tmp_path, add={"blk.0.attn_q.weight": Stored((32, 32), Q4_1, raw)})
    stored = read_tensors(read_header(path).tensors)
    read = read_gguf(path).tensors
    order = as_llama_cpp_stores("self_attn.q_proj.weight", np.arange(32), config)
    assert order.tolist() != list(range(32))
    for part in ("weight", "scales", "biases"):
        ours = read[f"model.layers.0.self_attn.q_proj.{part}"]
        assert mx.array_equal(ours[mx.array(order)], stored[f"blk.0.attn_q.{part}"])


def test_mixed_widths_are_stated_module_by_module(tmp_path):
    config = tiny_config()
    draw = np.random.default_rng(2)
    q8 = Stored((24, 32), Q8_0, draw.integers(0, 60, 24 * 34, dtype=np.uint8).tobytes())
    q4 = Stored((64, 32), Q4_1, draw.integers(0, 60, 64 * 20, dtype=np.uint8).tobytes())
    add = {"token_embd.weight": q8, "blk.0.ffn_up.weight": q4, "blk.1.ffn_up.weight": q4}
    checkpoint = read_gguf(tiny_file(tmp_path, config=config, add=add))
    assert checkpoint.quantization == {
        "group_size": 32,
        "bits": 4,
        "model.embed_tokens": {"group_size": 32, "bits": 8},
    }


# ---- metadata ----------------------------------------------------------------------------------


def test_the_config_holds_the_numbers_of_the_metadata(tmp_path):
    found = read_gguf(tiny_file(tmp_path)).config
    expected = tiny_config(eos_token_id=[23], rms_norm_eps=pytest.approx(1e-5))
    assert {key: found[key] for key in expected} == expected


def test_a_head_dimension_a_window_and_a_scaling_may_be_stated(tmp_path):
    config = tiny_config(head_dim=16)
    changes = {"llama.attention.key_length": 16, "llama.rope.dimension_count": 16}
    assert read_gguf(tiny_file(tmp_path, config=config, **changes)).config["head_dim"] == 16
    path = tiny_file(tmp_path, **{"llama.attention.sliding_window": 16})
    assert load_model(path).config.layer_windows == (16, 16)
    stated = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    config = load_model(tiny_file(tmp_path, **stated)).config
    assert config.rope_scaling == {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"general.architecture": "bert"}, "architecture 'bert'; llama, qwen2, qwen3, qwen2moe,"),
        ({"general.architecture": ["llama"]}, "architecture ['llama']"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.block_count": None}, "llama has no 'block_count'"),
        ({"llama.block_count": 2**31 - 1}, "states 2147483647 layers"),
        ({"llama.embedding_length": 32.5}, "choose another file of this model"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "epsilon' is nan"),
        ({"llama.embedding_length": 64}, "embed_tokens.weight (24, 32), not (24, 64)"),
        ({"llama.attention.head_count_kv": 4}, "k_proj.weight (16, 32), not (32, 32)"),
        ({"llama.rope.dimension_count": 4}, "does not rotate heads whole"),
        ({"llama.rope.scaling.type": "longrope"}, "longrope"),
        ({"tokenizer.chat_template": ["a"]}, "a chat template that is not text"),
    ],
)
def test_refuses_metadata_by_name(tmp_path, changes, part):
    assert part in refusal_of(tiny_file(tmp_path, **changes))


def test_a_lone_last_layer_does_not_vouch_for_two_billion_before_it(tmp_path):
    lone = {"blk.2147483646.ffn_up.weight": floats(np.zeros((64, 32)))}
    path = tiny_file(tmp_path, add=lone, **{"llama.block_count": 2**31 - 1})
    assert "states 2147483647 layers" in refusal_of(path)


Q = "model.layers.1.self_attn.q_proj"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"attn_v.weight": None}, ["lacks model.layers.1.self_attn.v_proj.weight"]),
        ({"attn_q_norm.weight": [1.0]}, ["holds the tensor blk.1.attn_q_norm.weight"]),
        ({"attn_q.weight": np.ones((6, 32))}, [f"{Q}.weight (6, 32), not (32, 32)"]),
        (
            {"attn_q.weight": None, "attn_q.scales": [1.0]},
            [f"lacks {Q}.weight", f"holds {Q}.scales"],
        ),
    ],
)
def test_names_a_missing_a_foreign_and_a_misshapen_tensor(tmp_path, changes, named):
    tensors = {f"blk.1.{name}": None if x is None else floats(x) for name, x in changes.items()}
    message = refusal_of(tiny_file(tmp_path, add=tensors))
    assert all(words in message for words in named)


# ---- scaled rotary embeddings ------------------------------------------------------------------


def llama3_factors(theta, head_dim, factor):
    """One factor per frequency, as llama.cpp's converter computes them."""
    factors = []
    for index in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (index / head_dim)
        if wavelength < 8192 / 4:
            factors.append(1.0)
        elif wavelength > 8192:
            factors.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / 3
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3_factors_lead_back_to_their_settings(tmp_path, factor):
    factors = llama3_factors(500000.0, 8, factor)
    assert 1.0 < factors[2] < factor  # one frequency lies on the ramp
    original = tiny_config(rope_theta=500000.0)
    path = tiny_file(tmp_path, config=original, add={"rope_freqs.weight": floats(factors)})
    assert load_model(path).config.rope_scaling == {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


@pytest.mark.parametrize(
    "factors", [[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 8.0], [0.0] * 4, [float("nan")] * 4]
)
def test_refuses_other_factors(tmp_path, factors):
    message = refusal_of(tiny_file(tmp_path, add={"rope_freqs.weight": floats(factors)}))
    assert "rope_freqs.weight with factors that are not those of Llama 3" in message


@pytest.mark.parametrize("key", ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type"])
def test_a_number_in_place_of_the_tokens_is_refused_when_models_are_listed(tmp_path, key):
    path = tiny_file(tmp_path, **{key: 7})
    assert describe_model(path, "m", "m").profile is not None or "7" in refusal_of(path)
    assert "another kind than a list" in refusal_of(path)


# ---- a model in several files, as llama.cpp splits it ----------------------------------------


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
