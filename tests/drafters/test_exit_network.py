"""The network of an early exit: its arithmetic, and its checkpoints."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafters.early_exit import ExitConfig
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


@pytest.mark.parametrize("wrong", [{"num_blocks": 0}, {"threshold": 0.0}, {"layer": "x"}], ids=str)
def test_the_config_of_a_checkpoint_is_read_and_checked(wrong):
    assert ExitConfig.from_dict(CONFIG) == ExitConfig(1, 64, 64, num_blocks=2, threshold=0.25)
    with pytest.raises(UnsupportedModelError, match=next(iter(wrong))):
        ExitConfig.from_dict(CONFIG | wrong)


def test_a_config_that_lacks_a_size_is_refused():
    with pytest.raises(UnsupportedModelError, match="'layer'"):
        ExitConfig.from_dict({name: CONFIG[name] for name in CONFIG if name != "layer"})
