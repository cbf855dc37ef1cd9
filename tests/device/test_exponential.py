"""The exponential by way of a power, and what is built on it, against NumPy and MLX's own."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.device import backend, exponential


@pytest.fixture(params=[False, True], ids=["own", "power"])
def slow(request, monkeypatch):
    """Both ways of computing, on every machine."""
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: request.param)


def normal(*shape, seed=0):
    return mx.random.normal(shape, key=mx.random.key(seed))


def test_a_power_is_as_exact_as_rounding_its_argument(monkeypatch):
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: True)
    x = np.linspace(-87, 88, 100_001, dtype=np.float32)
    got = np.array(exponential.exp(mx.array(x))).astype(np.float64)
    expected = np.exp(x.astype(np.float64))
    assert np.all(np.abs(got / expected - 1) < 1.2e-7 + 4e-8 * np.abs(x))


@pytest.mark.usefixtures("slow")
def test_exp_is_zero_at_minus_infinity_and_keeps_what_is_no_number():
    got = np.array(exponential.exp(mx.array([-np.inf, -1e30, 0.0, 1e30, np.inf, np.nan])))
    np.testing.assert_array_equal(got, [0.0, 0.0, 1.0, np.inf, np.inf, np.nan])


@pytest.mark.usefixtures("slow")
def test_the_gradient_of_exp_is_exp():
    x = normal(50)
    np.testing.assert_allclose(mx.grad(lambda x: exponential.exp(x).sum())(x), mx.exp(x), rtol=1e-6)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_sums_and_shares_are_those_of_mlx(dtype):
    x = (normal(3, 7) * 20).astype(dtype)
    x[1, 2] = -mx.inf
    ours, theirs = exponential.log_sum_exp(x), mx.logsumexp(x, axis=-1)
    np.testing.assert_allclose(ours.astype(mx.float32), theirs.astype(mx.float32), rtol=1e-6)
    ours, theirs = exponential.softmax(x), mx.softmax(x, axis=-1, precise=True)
    assert ours.dtype == dtype
    np.testing.assert_allclose(
        ours.astype(mx.float32), theirs.astype(mx.float32), rtol=4e-6, atol=1e-30
    )
