"""The layers of an adapted model share the angles of their rotations, and rotate as they did."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from mlxspec.adapted.current import Current, Forward
from mlxspec.adapted.model import AdaptedModel
from mlxspec.adapted.positions import position_rotation
from mlxspec.device import backend
from mlxspec.device.attention import Angles
from tests.support.zoo import PARENTS, build, decoder_at, text_of, tree_of

WIDTH = 64


@pytest.fixture
def computed(monkeypatch):
    """How many rows each computation of angles was for, in order."""
    counts, right = [], Angles.of

    def note(positions, frequencies, num_pairs):
        counts.append(positions.size)
        return right(positions, frequencies, num_pairs)

    monkeypatch.setattr(Angles, "of", note)
    return counts


def rows(B=1, L=5, width=WIDTH, dtype=mx.float32):
    return mx.random.normal((B, 3, L, width), key=mx.random.key(7)).astype(dtype)


def rotated(rope, x, positions, offset=0, folded=None):
    """What the overridden module returns in a forward of ours."""
    current = Current()
    position_rotation(rope, current)
    with current.run(Forward(None, positions, {}, folded=folded)):
        return rope(x, offset)


def row_by_row(rope, x, positions):
    """What mlx-lm's own module returns for each row at its position (B, L)."""
    B, _, L, _ = x.shape
    sequences = [
        mx.concatenate([rope(x[b : b + 1, :, i : i + 1], positions[b][i]) for i in range(L)], 2)
        for b in range(B)
    ]
    return mx.concatenate(sequences)


@pytest.mark.parametrize("settings", [{}, {"base": 1e6}, {"scale": 0.25}])
@pytest.mark.parametrize("first", [0, 9, 3000])
def test_a_text_is_rotated_as_mlx_does(settings, first, cpu, computed):
    x = rows()
    plain = nn.RoPE(WIDTH, **settings)(x, first)
    got = rotated(nn.RoPE(WIDTH, **settings), x, first, first)
    np.testing.assert_allclose(np.array(got), np.array(plain), atol=1e-5)
    assert computed == [5]


@pytest.mark.parametrize(
    "positions", [[[4, 5, 5, 6, 7]], [[0, 1, 1, 2, 2], [800, 801, 802, 802, 801]]]
)
def test_every_node_of_a_tree_is_rotated_by_its_own_position(positions, cpu, computed):
    x = rows(B=len(positions))
    plain = row_by_row(nn.RoPE(WIDTH), x, positions)
    given = mx.array(positions[0] if len(positions) == 1 else positions, mx.int32)
    got = rotated(nn.RoPE(WIDTH), x, given)
    np.testing.assert_allclose(np.array(got), np.array(plain), atol=1e-5)
    assert len(computed) == 1


def test_rows_that_run_as_sequences_of_their_own_are_rotated_by_their_positions(cpu):
    positions = [[4, 5, 5], [30, 31, 31]]
    x = rows(B=6, L=1)
    plain = row_by_row(nn.RoPE(WIDTH), x, [[p] for each in positions for p in each])
    got = rotated(nn.RoPE(WIDTH), x, mx.array(positions, mx.int32), folded=(2, 3))
    np.testing.assert_allclose(np.array(got), np.array(plain), atol=1e-5)


def test_half_precision_is_kept_and_not_further_off_than_that_of_mlx(cpu):
    x = rows(dtype=mx.bfloat16)
    exact = np.array(nn.RoPE(WIDTH)(x.astype(mx.float32), 700))
    got = rotated(nn.RoPE(WIDTH), x, 700, 700)
    assert got.dtype == mx.bfloat16
    np.testing.assert_allclose(np.array(got.astype(mx.float32)), exact, atol=0.02)


def test_all_layers_of_a_forward_share_them_and_the_next_forward_has_its_own(cpu, computed):
    source = build("llama")
    decoder = decoder_at(AdaptedModel.of(source), text_of(8))
    computed.clear()
    decoder.tree_logits(tree_of(PARENTS))
    assert computed == [len(PARENTS)]
    decoder.tree_logits(tree_of(PARENTS))
    assert computed == [len(PARENTS)] * 2


def test_layers_of_another_base_even_if_it_changed_later_have_angles_of_their_own(cpu):
    one, other, current, x = nn.RoPE(WIDTH), nn.RoPE(WIDTH), Current(), rows()
    for rope in (one, other):
        position_rotation(rope, current)
    other.base = 77.0
    with current.run(Forward(None, 20, {})):
        got = one(x, 20), other(x, 20)
    for rotated_rows, base in zip(got, (10_000.0, 77.0), strict=True):
        plain = nn.RoPE(WIDTH, base=base)(x, 20)
        np.testing.assert_allclose(np.array(rotated_rows), np.array(plain), atol=1e-5)


class Stretched(nn.RoPE):
    def __call__(self, x, offset=0):
        return super().__call__(x * 2, offset)


@pytest.mark.parametrize(
    ("rope", "width"),
    [
        (nn.RoPE(WIDTH, traditional=True), WIDTH),
        (nn.RoPE(WIDTH // 2), WIDTH),  # rotates a part of each row
        (Stretched(WIDTH), WIDTH),
    ],
)
@pytest.mark.parametrize("positions", [6, [6, 7, 7, 8, 9]])
def test_modules_with_other_rules_rotate_as_they_did(rope, width, positions, cpu, computed):
    x = rows(width=width)
    places = list(range(6, 11)) if positions == 6 else positions
    plain = row_by_row(rope, x, [places])
    given = positions if positions == 6 else mx.array(positions, mx.int32)
    got = rotated(rope, x, given, 6)
    np.testing.assert_allclose(np.array(got), np.array(plain), atol=1e-5)
    assert not computed


def test_no_angles_stay_in_memory_after_a_forward(cpu):
    rope, current = nn.RoPE(WIDTH), Current()
    position_rotation(rope, current)
    with current.run(Forward(None, 20, {})):
        rope(rows(), 20)
        assert current.angles
    assert not vars(current)


def test_on_a_gpu_no_angles_are_shared(monkeypatch, computed):
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    assert rotated(nn.RoPE(WIDTH), rows(), 6, 6).shape == rows().shape
    assert not computed
