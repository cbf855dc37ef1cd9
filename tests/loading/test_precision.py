"""The floating-point type of a model: the requested one, or one that cannot overflow."""

import re

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec import api
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.errors import NumericsError
from mlxspec.loading import load_model
from mlxspec.models import ModelConfig, build_model
from mlxspec.params import DTYPES, Options
from mlxspec_cli.arguments import options
from mlxspec_cli.parser import build_parser
from tests.support.device_facts import believe_chip
from tests.support.model_folders import random_weights, save_folder, tiny_config
from tests.support.reference import reference_logits
from tests.support.tiny import text_logits

TOKENS = [1, 5, 3, 20, 0, 7, 11, 2]


@pytest.fixture
def gpu(monkeypatch):
    """Make the loader believe that MLX computes on a GPU."""
    monkeypatch.setattr(backend, "is_cpu", lambda: False)


def halves(family="llama", size=1.0):
    """Float16 weights of a model whose residual stream reaches about 15 times the size."""
    config = tiny_config(family, max_position_embeddings=512)
    weights = random_weights(config)
    for name in weights:
        if "norm" in name:
            weights[name] = np.ones_like(weights[name])
        if "down_proj.weight" in name:
            weights[name] *= size
    return config, {name: mx.array(array).astype(mx.float16) for name, array in weights.items()}


def folder_of(path, family="llama", size=1.0):
    config, weights = halves(family, size)
    return save_folder(path / "tiny", config, weights)


def truth(family="llama", size=1.0):
    """The logits (L, V) of the stored weights, and the largest number between the layers."""
    config, weights = halves(family, size)
    model = build_model(ModelConfig.from_dict(config))
    model.load_weights([(name, array.astype(mx.float32)) for name, array in weights.items()])
    decoder = Decoder(model)
    decoder.observe(TOKENS)
    _, states = decoder.hidden_states([1])
    return reference_logits(model, TOKENS), float(mx.abs(states[0]).max())


def logits_of(model):
    return np.array(text_logits(model, TOKENS).astype(mx.float32))


# ---- what is chosen ------------------------------------------------------------------------


def assert_near(logits, expected, share=0.05):
    np.testing.assert_allclose(logits, expected, atol=share * np.abs(expected).max())


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("family", "size", "dtype"),
    [
        ("llama", 1.0, mx.float16),
        ("llama", 500.0, mx.float16),
        ("llama", 2_000.0, mx.bfloat16),  # no infinity yet, but near
        ("qwen2", 1.0, mx.bfloat16),
    ],
)
def test_float16_stays_where_it_is_wide_enough(family, size, dtype, tmp_path):
    expected, largest = truth(family, size)
    assert (largest > 2**14) == (size > 1_000)
    assert largest < 65_504
    loaded = load_model(folder_of(tmp_path, family, size))
    assert loaded.model.dtype == dtype
    assert {array.dtype for _, array in tree_flatten(loaded.model.parameters())} == {dtype}
    assert_near(logits_of(loaded.model), expected)


@pytest.mark.parametrize(
    ("device", "family", "size", "dtype"),
    [
        ("Apple M1", "llama", 1.0, mx.float16),
        ("Apple M2 Ultra", "llama", 1.0, mx.float16),
        ("Apple M2 Ultra", "llama", 2_000.0, mx.bfloat16),
        ("Apple M1", "qwen2", 1.0, mx.bfloat16),
        ("Apple M3", "llama", 1.0, mx.bfloat16),
        ("Apple M6 Max", "llama", 1.0, mx.bfloat16),
    ],
)
def test_on_a_chip_without_bfloat16_float16_is_taken_where_it_is_wide_enough(
    device, family, size, dtype, tmp_path, monkeypatch
):
    expected, _ = truth(family, size)
    config, weights = halves(family, size)
    weights = {name: array.astype(mx.bfloat16) for name, array in weights.items()}
    folder = save_folder(tmp_path / "tiny", config, weights)
    believe_chip(device, monkeypatch.setattr)
    model = load_model(folder).model
    assert {array.dtype for _, array in tree_flatten(model.parameters())} == {dtype}
    assert_near(logits_of(model), expected)
    if dtype == mx.bfloat16:  # not one number was changed on the way
        stored = weights["model.norm.weight"], weights["model.embed_tokens.weight"]
        loaded = model.model.norm.weight, model.model.embed_tokens.weight
        assert all(mx.array_equal(*pair) for pair in zip(stored, loaded, strict=True))
    assert load_model(folder, dtype="bfloat16").model.dtype == mx.bfloat16


@pytest.mark.usefixtures("gpu")
def test_the_scales_of_packed_weights_are_widened_with_all_others(tmp_path):
    config, weights = halves(size=2_000.0)
    model = build_model(ModelConfig.from_dict(config))
    model.load_weights(list(weights.items()))
    nn.quantize(model, group_size=32, bits=8)
    config["quantization"] = {"group_size": 32, "bits": 8}
    packed = dict(tree_flatten(model.parameters()))
    folder = save_folder(tmp_path / "tiny", config, packed)
    loaded = load_model(folder)
    dtypes = {array.dtype for _, array in tree_flatten(loaded.model.parameters())}
    assert dtypes == {mx.uint32, mx.bfloat16}
    assert loaded.weights == "8-bit"
    assert_near(logits_of(loaded.model), logits_of(load_model(folder, dtype="float32").model), 0.1)


# ---- what is asked for ---------------------------------------------------------------------


def test_the_type_is_an_option_of_load_and_of_the_command_line(tmp_path):
    engine = api.load(folder_of(tmp_path), drafter="none", dtype="bfloat16")
    assert engine.target.model.dtype == mx.bfloat16
    assert engine.weights == "bfloat16 from float16"
    arguments = build_parser().parse_args(["generate", "--dtype", "float32"])
    assert options(arguments).dtype == "float32"


@pytest.mark.parametrize("wrong", ["half", 16, None])
def test_a_type_that_is_not_known_is_refused(wrong):
    told = f"dtype must be one of auto, float16, bfloat16, float32; got {wrong!r}"
    with pytest.raises(ValueError, match=told):
        Options(dtype=wrong)


def test_the_error_for_a_target_without_finite_numbers_names_an_option_that_helps(tmp_path):
    folder = folder_of(tmp_path, size=8_000.0)
    engine = api.load(folder, drafter="none", dtype="float16")
    with pytest.raises(NumericsError) as told:
        list(engine.generate(TOKENS))
    (word,) = re.findall(r"--dtype (\w+)", str(told.value))
    assert word in DTYPES
    assert f"load(dtype='{word}')" in str(told.value)
    better = api.load(folder, drafter="none", dtype=word)
    assert list(better.generate(TOKENS))
