"""Tensors into a model: every name is accounted for, and quantised ones mean what MLX means."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.device import backend
from mlxspec.errors import UnsupportedModelError
from mlxspec.models import ModelConfig, build_model
from mlxspec.models.weights import load_weights, words_of_loaded
from tests.support.model_folders import random_model, random_weights, tiny_config
from tests.support.tiny import text_logits

TOKENS = [1, 5, 3, 20, 0, 7]


def empty_model(config=None):
    return build_model(ModelConfig.from_dict(config or tiny_config()))


def arrays(config=None, seed=0):
    weights = random_weights(config or tiny_config(), seed)
    return {name: mx.array(array) for name, array in weights.items()}


def logits_of(model):
    return text_logits(model, TOKENS)


def refusal_of(tensors, model=None, quantization=None) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        load_weights(model or empty_model(), tensors, quantization)
    return str(caught.value)


def quantized(settings, skip=()):
    """The tensors of a model quantised by MLX itself, and that model."""
    model = random_model(tiny_config())

    def choose(path, module):
        if path in skip or not hasattr(module, "to_quantized"):
            return False
        own = settings.get(path)
        return own or {
            key: settings[key] for key in ("group_size", "bits", "mode") if key in settings
        }

    nn.quantize(model, class_predicate=choose)
    return dict(tree_flatten(model.parameters())), model


def test_a_complete_checkpoint_is_put_in(tmp_path):
    model = empty_model()
    assert load_weights(model, arrays()) == "float32"
    assert mx.array_equal(logits_of(model), logits_of(random_model(tiny_config())))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("model.layers.1.mlp.up_proj.weight", None, "lacks {name}:"),
        ("lm_head.weight", None, "lacks {name}"),
        ("model.layers.0.self_attn.q_norm.weight", mx.zeros(8), "holds {name}, which"),
        ("model.norm.weight", mx.zeros(31), "holds {name} (31,), not (32,)"),
        ("model.norm.weight", mx.zeros(32, mx.uint8), "holds {name} as mlx.core.uint8, which"),
    ],
)
def test_a_tensor_that_lacks_or_does_not_fit_is_named(name, array, message):
    tensors = {key: held for key, held in arrays().items() if key != name}
    tensors |= {} if array is None else {name: array}
    assert message.format(name=name) in refusal_of(tensors)


@pytest.mark.parametrize(
    ("name", "tied"),
    [("model.layers.0.self_attn.rotary_emb.inv_freq", False), ("lm_head.weight", True)],
)
def test_tables_of_frequencies_and_a_head_beside_a_tied_embedding_are_ignored(name, tied):
    config = tiny_config(tie_word_embeddings=tied)
    more = {name: mx.zeros((24, 32))}
    assert load_weights(empty_model(config), arrays(config) | more) == "float32"


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision_becomes_float32_on_a_cpu(dtype, cpu):
    model = empty_model()
    halves = {name: array.astype(dtype) for name, array in arrays().items()}
    stored = str(dtype).removeprefix("mlx.core.")
    assert load_weights(model, halves) == stored
    assert words_of_loaded(stored) == f"float32 from {stored}"
    assert {array.dtype for _, array in tree_flatten(model.parameters())} == {mx.float32}


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_tensors_become_float32_on_a_cpu(bits, cpu):
    settings = {"group_size": 32, "bits": bits}
    tensors, original = quantized(settings)
    model = empty_model()
    assert words_of_loaded(load_weights(model, tensors, settings)) == f"float32 from {bits}-bit"
    assert isinstance(model.lm_head, nn.Linear)
    np.testing.assert_allclose(logits_of(model), logits_of(original), atol=1e-4)


MXFP4 = {"group_size": 32, "bits": 4, "mode": "mxfp4"}


def test_other_modes_of_quantising_are_passed_on(cpu):
    tensors, original = quantized(MXFP4)
    model = empty_model()
    assert words_of_loaded(load_weights(model, tensors, MXFP4)) == "float32 from mxfp4 4-bit"
    np.testing.assert_allclose(logits_of(model), logits_of(original), atol=0.05)


def test_integer_scales_leave_the_floats_alone_on_a_gpu(gpu):
    tensors, original = quantized(MXFP4)
    model = empty_model()
    assert words_of_loaded(load_weights(model, tensors, MXFP4)) == "mxfp4 4-bit"
    assert mx.array_equal(logits_of(model), logits_of(original))


def test_quantised_tensors_stay_so_on_a_gpu(gpu):
    settings = {"group_size": 32, "bits": 4, "lm_head": {"group_size": 32, "bits": 8}}
    tensors, original = quantized(settings, skip=["model.layers.0.self_attn.q_proj"])
    model = empty_model()
    assert load_weights(model, tensors, settings) == "4-bit"
    assert (model.lm_head.bits, model.model.embed_tokens.bits) == (8, 4)
    assert isinstance(model.layers[0].self_attn.q_proj, nn.Linear)
    assert mx.array_equal(logits_of(model), logits_of(original))


def test_floats_take_the_type_of_the_embedding_on_a_gpu(gpu):
    tensors = arrays()
    name = "model.embed_tokens.weight"
    model = empty_model()
    load_weights(model, tensors | {name: tensors[name].astype(mx.bfloat16)})
    assert {array.dtype for _, array in tree_flatten(model.parameters())} == {mx.bfloat16}


@pytest.fixture(params=["cpu", "gpu"])
def device(request):
    """Both devices, as far as the loader can tell."""
    request.getfixturevalue(request.param)


FOUR_BITS = {"group_size": 32, "bits": 4}
OTHER_SETTINGS = "is not quantised as its config.json states"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("stated", "hidden_size", "named"),
    [
        (None, 32, "its config.json has no 'quantization'"),
        (FOUR_BITS | {"bits": 8}, 32, OTHER_SETTINGS),
        (FOUR_BITS | {"group_size": 64}, 32, OTHER_SETTINGS),
        (FOUR_BITS | {"bits": "four"}, 32, OTHER_SETTINGS),
        (FOUR_BITS, 48, "model.embed_tokens.weight (24, 32), not (24, 48)"),  # no group divides it
    ],
)
def test_quantised_tensors_that_config_or_model_do_not_fit_are_named(stated, hidden_size, named):
    tensors, _ = quantized(FOUR_BITS)
    model = empty_model(tiny_config(hidden_size=hidden_size))
    assert named in refusal_of(tensors, model, stated)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32])
def test_a_model_takes_the_type_that_is_asked_for(dtype):
    settings = {"group_size": 32, "bits": 8}
    tensors, original = quantized(settings, skip=["model.layers.0.self_attn.q_proj"])
    model = empty_model()
    assert load_weights(model, tensors, settings, dtype) == "8-bit"
    floats = {a.dtype for _, a in tree_flatten(model.parameters()) if a.dtype != mx.uint32}
    assert floats == {dtype}
    assert logits_of(model).dtype == dtype
    np.testing.assert_allclose(logits_of(model).astype(mx.float32), logits_of(original), atol=0.2)


@pytest.mark.parametrize(
    ("is_cpu", "stored", "dtype", "words"),
    [
        (True, "4-bit", "auto", "float32 from 4-bit"),
        (True, "float32", "auto", "float32"),
        (True, "4-bit", "float16", "float16 from 4-bit"),
        (True, "float16", "float16", "float16"),
        (False, "4-bit", "auto", "4-bit"),
        (False, "bfloat16", "auto", "bfloat16"),
        (False, "4-bit", "bfloat16", "4-bit in bfloat16"),
        (False, "float16", "bfloat16", "bfloat16 from float16"),
        (False, "float16", "float16", "float16"),
    ],
)
def test_the_words_say_what_is_stored_and_what_became_of_it(
    is_cpu, stored, dtype, words, monkeypatch
):
    monkeypatch.setattr(backend, "is_cpu", lambda: is_cpu)
    assert words_of_loaded(stored, dtype) == words
