"""The network of an early exit: its arithmetic, and its checkpoints."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.drafters.early_exit.network import ExitConfig, ExitHead
from mlxspec.errors import UnsupportedModelError
from tests.support.tiny import tiny_model
from tests.support.tiny_heads_exit import exit_head, exit_hidden

MODEL = tiny_model(num_hidden_layers=3)
REDUCED = [1, 2, 3, 5, 7, 8, 11, 12, 13, 17, 20, 23]


@pytest.mark.parametrize("num_blocks", [1, 3])
def test_the_exit_does_the_arithmetic_of_its_drawing(num_blocks):
    head = exit_head(MODEL, num_blocks=num_blocks)
    states = mx.random.normal((2, 3, 64), key=mx.random.key(1)) * 4
    for at in np.ndindex(2, 3):
        expected = exit_hidden(head, np.array(states[at], np.float64))
        np.testing.assert_allclose(head(states)[at], expected, atol=1e-4)


CONFIG = {
    "layer": 1,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_blocks": 2,
    "threshold": 0.25,
    "rms_norm_eps": 1e-5,
    "kind": "exit",
}


def tensors_of(head, target_ids=None):
    tensors = dict(tree_flatten(head.parameters()))
    return tensors if target_ids is None else tensors | {"target_ids": mx.array(target_ids)}


def test_an_exit_comes_back_from_its_checkpoint():
    head = exit_head(MODEL, num_blocks=2, target_ids=REDUCED)
    again = ExitHead.from_checkpoint(CONFIG, tensors_of(head, REDUCED))
    assert again.config == ExitConfig(1, 64, 64, num_blocks=2, threshold=0.25)
    assert again.target_ids.tolist() == REDUCED
    assert set(tensors_of(again)) == set(tensors_of(head))
    states = mx.random.normal((4, 64), key=mx.random.key(1))
    np.testing.assert_array_equal(again(states), head(states))


@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantised_exit_says_what_its_numbers_stand_for(bits):
    head, packed = exit_head(MODEL, num_blocks=2), exit_head(MODEL, num_blocks=2)
    nn.quantize(packed, group_size=32, bits=bits)
    config = CONFIG | {"quantization": {"group_size": 32, "bits": bits}}
    loaded = ExitHead.from_checkpoint(config, tensors_of(packed))
    for name, weight in tensors_of(head).items():
        if "proj" in name or name == "fc.weight":
            triple = mx.quantize(weight, group_size=32, bits=bits)
            weight = mx.dequantize(*triple, group_size=32, bits=bits)
        head.load_weights([(name, weight)], strict=False)
    states = mx.random.normal((2, 64), key=mx.random.key(1))
    for state, hidden in zip(states, loaded(states), strict=True):
        np.testing.assert_allclose(hidden, exit_hidden(head, np.array(state)), atol=1e-3)


def spoiled(name, array=None):
    tensors = tensors_of(exit_head(MODEL, num_blocks=2))
    if array is None:
        del tensors[name]
    else:
        tensors[name] = array
    return tensors


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        ({}, spoiled("blocks.1.up_proj.weight"), r"lacks blocks\.1\.up_proj\.weight"),
        ({}, spoiled("norm.weight", mx.ones(63)), r"norm\.weight \(63,\), not \(64,\)"),
        ({}, spoiled("out.weight", mx.ones(3)), r"out\.weight, which the model does not have"),
        ({"num_blocks": 0}, spoiled("norm.weight"), "num_blocks of an exit must be"),
        ({"threshold": 0.0}, spoiled("norm.weight"), "threshold must be more than 0"),
        ({"layer": "x"}, spoiled("norm.weight"), "layer of an exit must be"),
    ],
)
def test_refuses_a_checkpoint_and_says_what_is_wrong(config, tensors, message):
    with pytest.raises(UnsupportedModelError, match=message):
        ExitHead.from_checkpoint(CONFIG | config, tensors)


def test_refuses_a_config_that_lacks_a_size():
    config = {name: value for name, value in CONFIG.items() if name != "layer"}
    with pytest.raises(UnsupportedModelError, match="'layer'"):
        ExitHead.from_checkpoint(config, tensors_of(exit_head(MODEL, num_blocks=2)))
