"""The network of an early exit: its arithmetic, and its checkpoints."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafters.early_exit import ExitHead
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.file import HeadCheckpoint
from tests.support.tiny import tiny_model
from tests.support.tiny_heads_exit import exit_head, exit_hidden

MODEL = tiny_model(num_hidden_layers=3)


@pytest.mark.parametrize("num_blocks", [1, 3])
def test_the_exit_does_the_arithmetic_of_its_drawing(num_blocks):
    head = exit_head(MODEL, num_blocks=num_blocks)
    states = mx.random.normal((2, 3, 64), key=mx.random.key(1)) * 4
    for at in np.ndindex(2, 3):
        expected = exit_hidden(head, np.array(states[at], np.float64))
        np.testing.assert_allclose(head(states)[at], expected, atol=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"rms_norm_eps": 0.0}, {"threshold": 0.0}, {"threshold": 1.5}, {"num_blocks": -1}),
        *({"layer": 3}, {"layer": None}, {"intermediate_size": "x"}),
    ],
    ids=str,
)
def test_the_config_of_a_checkpoint_is_checked(wrong):
    own = exit_head(MODEL)
    config, target = {**own.config, "threshold": 0.25}, MODEL.config
    head = HeadCheckpoint("exit", config, own.tensors, "h", {})
    assert ExitHead.of_head(head, target, mx.float32).threshold == 0.25
    with pytest.raises(UnsupportedModelError, match=next(iter(wrong))):
        ExitHead.of_head(replace(head, config=config | wrong), target, mx.float32)
