"""Rotary frequencies, positions per node and the precision of angles."""

import json

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.device import backend
from mlxspec.models import ModelConfig
from mlxspec.models.rope import Rope, inverse_frequencies
from tests.support.golden import FOLDER

PUBLISHED = json.loads((FOLDER / "rope.json").read_text())


def rotated_by_hand(x, positions, theta):
    """(L, D) rows turned in float64, pair (i, i + D/2) by position * theta ** (-2i/D)."""
    half = x.shape[-1] // 2
    angles = np.outer(positions, theta ** (-np.arange(half) / half))
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def rotated(rope, x, positions):
    """What becomes of queries (B, H, L, D), and of keys of half as many heads."""
    queries, keys = rope(x, x[:, ::2], positions)
    assert mx.array_equal(queries[:, ::2], keys)
    return queries


@pytest.mark.parametrize("name", PUBLISHED)
def test_frequencies_and_the_sharpness_of_yarn_are_those_of_hugging_face(name):
    config = ModelConfig.from_dict(PUBLISHED[name]["config"])
    settings = config.head_dim, config.rope_theta, config.rope_scaling
    expected = PUBLISHED[name]["inverse_frequencies"]
    np.testing.assert_allclose(inverse_frequencies(*settings), expected, rtol=1e-5)
    sharpness = PUBLISHED[name]["attention_factor"] ** 2
    assert Rope(*settings).score_factor == pytest.approx(sharpness)


def test_each_node_is_rotated_by_its_own_position():
    positions = [7, 8, 8, 9, 9, 4100]
    x = mx.random.normal((1, 6, 3, 8), key=mx.random.key(0))
    turned = np.array(rotated(Rope(8, 10000.0, None), x.swapaxes(1, 2), mx.array(positions)))
    for head in range(3):
        expected = rotated_by_hand(np.array(x[0, :, head]), positions, 10000.0)
        np.testing.assert_allclose(turned[0, head], expected, atol=1e-3)
        np.testing.assert_allclose(turned[0, head, :5], expected[:5], atol=1e-5)


def test_a_contiguous_run_starts_at_its_offset():
    x = mx.random.normal((1, 5, 2, 8), key=mx.random.key(1))
    turned = np.array(rotated(Rope(8, 500.0, None), x.swapaxes(1, 2), 11))
    expected = rotated_by_hand(np.array(x[0, :, 1]), range(11, 16), 500.0)
    np.testing.assert_allclose(turned[0, 1], expected, atol=1e-5)


@pytest.mark.parametrize("positions", [11, [11, 12, 12, 700, 13]])
def test_prepared_angles_turn_each_row_by_its_position(positions, monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: True)
    x = mx.random.normal((2, 5, 3, 8), key=mx.random.key(4))
    rope = Rope(8, 500.0, None)
    line = isinstance(positions, int)
    angles = rope.prepared(positions if line else mx.array(positions, mx.int32), 5)
    assert angles.cosines.shape[0] == 5
    turned = np.array(rotated(rope, x.swapaxes(1, 2), angles))
    rows = range(11, 16) if line else positions
    for batch, head in np.ndindex(2, 3):
        expected = rotated_by_hand(np.array(x[batch, :, head]), rows, 500.0)
        np.testing.assert_allclose(turned[batch, head], expected, atol=1e-4)


def test_positions_stay_as_they_are_where_the_device_rotates_by_itself(monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    assert Rope(8, 500.0, None).prepared(11, 5) == 11


@pytest.mark.parametrize("positions", [4097, mx.array([4097], mx.int32)])
def test_bfloat16_rows_are_turned_by_float32_angles(positions):
    x = mx.random.normal((1, 1, 2, 64), key=mx.random.key(3)).astype(mx.bfloat16)
    rope = Rope(64, 10000.0, None)
    expected = rotated_by_hand(np.array(x[0, :, 0].astype(mx.float32)), [4097], 10000.0)
    for placed in (positions, rope.prepared(positions, 1)):
        turned = rotated(rope, x.swapaxes(1, 2), placed)
        assert turned.dtype == mx.bfloat16
        got = np.array(turned[0, 0].astype(mx.float32))
        np.testing.assert_allclose(got, expected, atol=0.04)
