"""Products in pieces and by several cores against the plain product."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlxspec.device import backend, core_split
from mlxspec.device.products import Linear, attention_heads, product, swiglu
from tests.support.pairwise import each_value

D = 576
COUNTS = [  # of cores that share work
    pytest.param(0, id="no split"),
    pytest.param(1, id="one core"),
    pytest.param(2, id="two cores"),
]


@pytest.fixture(params=COUNTS)
def count(request, monkeypatch):
    """As many cores that share work, on any machine."""
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: True)
    monkeypatch.setattr(backend, "num_split_cores", lambda: request.param)
    monkeypatch.setattr(core_split, "_split", core_split._CoreSplit())
    monkeypatch.setattr(core_split, "set_blas_threads", lambda threads: None)
    return request.param


def normal(*shape, seed=0):
    return mx.random.normal(shape, key=mx.random.key(seed))


def linear(height, *, bias=False, width=D):
    layer = Linear(width, height, bias=bias)
    layer.weight = normal(height, width, seed=height)
    if bias:
        layer.bias = normal(height, seed=1)
    return layer


def by_hand(layer, x):
    result = np.array(x, np.float64) @ np.array(layer.weight, np.float64).T
    return result + np.array(layer.bias) if "bias" in layer else result


def assert_close(got, expected):
    np.testing.assert_allclose(np.array(got), expected, rtol=1e-4, atol=3e-4)


@each_value(
    shape=[
        (),
        (1,),
        (8,),
        (1, 1),
        (1, 8),
        (17,),
        (1, 40),
        (54,),
        (1, 55),
        (1, 200),
        (3, 5),
        (2, 1, 3),
    ],
    height=[1, 7, 48, 192, 576, 1000],
    bias=[False, True],
    count=COUNTS,
    indirect=["count"],
)
def test_a_product_is_the_product(count, shape, height, bias):
    layer, x = linear(height, bias=bias), normal(*shape, D, seed=3)
    assert_close(layer(x), by_hand(layer, x))
    assert layer(x).shape == (*shape, height)


@each_value(shape=[(1, 1), (1, 8), (1, 40), (1, 200), (3, 5)], count=COUNTS, indirect=["count"])
def test_an_embedding_is_a_head(count, shape):
    head, x = nn.Embedding(1500, D), normal(*shape, D)
    assert_close(product(head, x), by_hand(head, x))


@pytest.mark.parametrize("kind", [nn.Linear, nn.Embedding])
def test_quantised_layers_are_multiplied_too(count, kind):
    plain = kind(64, 128) if kind is nn.Linear else kind(128, 64)
    layer, x = plain.to_quantized(group_size=32, bits=8), normal(2, 3, 64)
    expected = layer(x) if kind is nn.Linear else layer.as_linear(x)
    np.testing.assert_allclose(product(layer, x), expected, atol=1e-5)
    if kind is nn.Linear:
        inner = swiglu(layer, layer, x)
        np.testing.assert_allclose(inner, nn.silu(expected) * expected, atol=1e-4)
        for got in attention_heads(x, layer, layer, layer, 32):
            np.testing.assert_allclose(got, expected.reshape(2, 3, 4, 32).swapaxes(1, 2), atol=1e-5)


@each_value(
    shape=[(1, 1), (1, 8), (1, 27), (1, 40), (1, 200), (3, 5)],
    head_dim=[16, 64, 96],
    bias=[False, True],
    count=COUNTS,
    indirect=["count"],
)
def test_heads_come_in_front(count, head_dim, shape, bias):
    layers = [linear(count * head_dim, bias=bias) for count in (6, 3, 2)]
    x = normal(*shape, D)
    for layer, got in zip(layers, attention_heads(x, *layers, head_dim), strict=True):
        expected = by_hand(layer, x).reshape(*shape, -1, head_dim).swapaxes(1, 2)
        assert_close(got, expected)


@each_value(
    shape=[(1, 1), (1, 8), (1, 70), (3, 5)], bias=[False, True], count=COUNTS, indirect=["count"]
)
def test_a_gate_and_what_it_lets_through(count, shape, bias):
    gate, up, x = linear(320, bias=bias), linear(320, bias=bias), normal(*shape, D) * 0.1
    up.weight = normal(320, D, seed=9)
    opened = by_hand(gate, x)
    expected = opened / (1 + np.exp(-opened)) * by_hand(up, x)
    got = swiglu(gate, up, x)
    np.testing.assert_allclose(np.array(got), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("changed", [{"weight": normal(192, D, seed=7)}, {"bias": normal(192)}])
def test_new_weights_and_biases_are_multiplied_with_and_added(count, changed):
    layer, x = linear(192, bias=True), normal(1, 4, D)
    mx.eval(layer(x))
    layer.update(changed)
    assert_close(layer(x), by_hand(layer, x))


def test_gradients_reach_the_weights_where_products_are_left_to_the_blas(count):
    layer, x = linear(64, bias=True), normal(1, 4, D)
    mx.eval(layer(x))
    with core_split.left_to_blas():
        gradients = nn.value_and_grad(layer, lambda x: layer(x).sum())(x)[1]
    assert_close(gradients["weight"], np.tile(np.array(x).sum((0, 1)), (64, 1)))
    assert_close(gradients["bias"], np.full(64, 4.0))


def test_views_hold_no_copy_of_the_weights(count):
    layer, x = linear(1536), normal(1, 8, D)
    mx.eval(layer.weight, x)
    mx.eval(layer(x))
    before = mx.get_active_memory()
    for num_rows in (1, 3, 30, 60):
        mx.eval(layer(normal(1, num_rows, D)))
    assert mx.get_active_memory() - before < layer.weight.nbytes / 10


@pytest.mark.parametrize("has_accelerate", [False, True])
@pytest.mark.parametrize("height", [700, 768, 769, 2000])
def test_a_tall_product_is_the_product(height, has_accelerate, monkeypatch):
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: not has_accelerate)
    head, x = nn.Embedding(height, 8), normal(3, 8)
    with core_split.left_to_blas():
        got = product(head, x)
    np.testing.assert_allclose(got, x @ head.weight.T, rtol=1e-5, atol=1e-5)
