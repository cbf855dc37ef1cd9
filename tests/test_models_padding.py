"""Rows added for a BLAS: which counts get them, and that nobody ever sees them."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec import backend
from mlxspec.models import padding
from tests.golden import load_golden
from tests.reference import ConcatCache, causal_masks, path_to, reference_logits, tree_masks

measured_step = padding.row_step.__wrapped__  # before the suite replaces it


def fixed_step(monkeypatch, step):
    monkeypatch.setattr(padding, "row_step", lambda: step)


@pytest.mark.parametrize(
    ("step", "counts"),
    [
        (16, {1: 1, 2: 2, 3: 16, 15: 16, 16: 16, 17: 32, 64: 64, 65: 65}),
        (4, {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 63: 64}),
        (1, {1: 1, 3: 3, 17: 17}),
    ],
)
def test_rows_are_filled_up_to_the_next_step(step, counts, monkeypatch):
    fixed_step(monkeypatch, step)
    for rows, expected in counts.items():
        x = padding.padded(mx.ones((1, rows, 2)))
        assert x.shape == (1, expected, 2)
        assert x.sum().item() == 2 * rows


def test_a_batch_has_rows_enough(monkeypatch):
    fixed_step(monkeypatch, 16)
    assert padding.padded(mx.ones((2, 3, 2))).shape == (2, 3, 2)


@pytest.mark.parametrize(
    ("ms", "step"),
    [
        ({3: 0.45, 4: 0.54, 12: 0.96, 16: 0.43}, 16),
        ({3: 0.37, 4: 0.24, 12: 0.34, 16: 0.41}, 4),
        ({3: 1.4, 4: 1.8, 12: 5.4, 16: 7.2}, 1),
        ({3: 0.40, 4: 0.39, 12: 0.41, 16: 0.40}, 1),
    ],
)
def test_a_step_is_taken_where_more_rows_take_clearly_less_time(ms, step, monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: True)
    monkeypatch.setattr(
        padding, "_fastest_ms", lambda counts: {count: ms[count] for count in counts}
    )
    assert measured_step() == step


def test_a_gpu_is_not_asked(monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    monkeypatch.setattr(padding, "_fastest_ms", lambda _: pytest.fail("measured"))
    assert measured_step() == 1


@pytest.mark.parametrize("step", [4, 16])
@pytest.mark.parametrize("name", ["llama_bias", "mistral_window", "qwen2_untied"])
def test_a_forward_with_added_rows_is_that_of_its_own_rows(name, step, monkeypatch):
    fixed_step(monkeypatch, step)
    golden = load_golden(name)
    model, cache = golden.model(), ConcatCache()
    prompt = golden.tokens[:11]
    tokens, parents = [5, 9, 33, 9, 60], [-1, 0, 0, 1, 2]
    model.hidden_states(mx.array([prompt]), cache, 0, causal_masks(model, range(11), range(11)))
    positions = mx.array([10 + len(path_to(parents, node)) for node in range(5)], mx.int32)
    hidden, (entering, leaving) = model.hidden_states(
        mx.array([tokens]), cache, positions, tree_masks(model, 11, parents), capture=(0, 2)
    )
    logits = model.logits(hidden[0])
    assert logits.shape == (5, golden.config.vocab_size)
    assert entering.shape == leaving.shape == hidden.shape == (1, 5, golden.config.hidden_size)
    assert all(keys.shape[2] == values.shape[2] == 16 for keys, values in cache.rows.values())
    for node in range(5):
        line = prompt + [tokens[other] for other in path_to(parents, node)]
        expected = reference_logits(model, line)[-1]
        np.testing.assert_allclose(np.array(logits[node]), expected, atol=1e-4)
