"""The losses and their gradients against the plain formula, differentiated by MLX."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.train.reduced_head import (
    ReducedHead,
    soft_cross_entropy,
    target_probs,
    tied_cross_entropy,
)

ROWS, WIDTH, TOKENS = 5, 6, 9


def normal(*shape, seed):
    return mx.random.normal(shape, key=mx.random.key(seed))


@pytest.fixture
def hidden():
    return normal(ROWS, WIDTH, seed=1)


@pytest.fixture
def head():
    return normal(TOKENS, WIDTH, seed=2)


@pytest.fixture
def probs():
    return mx.softmax(normal(ROWS, TOKENS, seed=3), axis=-1)


def plain(hidden, head, probs):
    logits = hidden @ head.T
    return -(probs * (logits - mx.logsumexp(logits, axis=-1, keepdims=True))).sum()


def test_the_soft_cross_entropy_and_its_gradient_are_those_of_the_formula(hidden, head, probs):
    reduced = ReducedHead(head)
    got = mx.value_and_grad(lambda h: 3 * soft_cross_entropy(h, reduced, probs))(hidden)
    expected = mx.value_and_grad(lambda h: 3 * plain(h, head, probs))(hidden)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_head_with_bias_and_cap_is_learned_by_its_own_logits(hidden, head, probs):
    reduced = ReducedHead(head, normal(TOKENS, seed=5), cap=1.5)
    weight, bias = np.array(head, np.float64), np.array(reduced.bias, np.float64)
    step, expected = 1e-5, []

    def loss(states):
        logits = 1.5 * np.tanh((states @ weight.T + bias) / 1.5)
        return -(np.array(probs) * (logits - np.log(np.exp(logits).sum(1, keepdims=True)))).sum()

    states = np.array(hidden, np.float64)
    for place in np.ndindex(*states.shape):
        near = [states.copy() for _ in range(2)]
        near[0][place] += step
        near[1][place] -= step
        expected.append((loss(near[0]) - loss(near[1])) / (2 * step))
    got, slopes = mx.value_and_grad(lambda h: soft_cross_entropy(h, reduced, probs))(hidden)
    assert got.item() == pytest.approx(loss(states), rel=1e-5)
    np.testing.assert_allclose(np.array(slopes).ravel(), expected, rtol=1e-3, atol=1e-5)


def test_target_probs_are_the_softmax_over_the_reduced_head(hidden, head):
    expected = mx.softmax(hidden @ head.T, axis=-1)
    np.testing.assert_allclose(target_probs(hidden, ReducedHead(head)), expected, rtol=1e-6)


def test_a_tied_head_learns_with_the_rows_that_use_it(hidden, head):
    tokens, stated = mx.array([[0, 3], [8, -1], [5, 2], [1, 0], [4, 7]]), normal(5, 2, seed=4)
    stated = mx.abs(stated)
    dense = np.zeros((ROWS, TOKENS), np.float32)
    for row, (pair, masses) in enumerate(zip(tokens.tolist(), stated.tolist(), strict=True)):
        for token, mass in zip(pair, masses, strict=True):
            dense[row, token] += mass if token >= 0 else 0.0
    dense = mx.array(dense / dense.sum(axis=1, keepdims=True))
    got = mx.value_and_grad(lambda a: tied_cross_entropy(*a, tokens, stated))([hidden, head])
    expected = mx.value_and_grad(lambda a: plain(*a, dense))([hidden, head])
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    for one, other in zip(got[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_row_whose_tokens_the_head_does_not_have_teaches_nothing(hidden, head):
    tokens, stated = mx.full((ROWS, 2), -1), mx.ones((ROWS, 2))
    loss, gradients = mx.value_and_grad(lambda a: tied_cross_entropy(*a, tokens, stated))(
        [hidden, head]
    )
    assert loss.item() == 0
    assert all(mx.abs(gradient).max().item() == 0 for gradient in gradients)
