"""SiLU and attention against MLX's own."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlxspec import backend
from mlxspec.models import kernels


@pytest.fixture(params=[False, True], ids=["own", "power"])
def slow(request, monkeypatch):
    """Both ways of computing, on every machine."""
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: request.param)


def normal(*shape, seed=0):
    return mx.random.normal(shape, key=mx.random.key(seed))


@pytest.mark.usefixtures("slow")
def test_silu_is_that_of_mlx():
    x = normal(3, 7) * 20
    np.testing.assert_allclose(kernels.silu(x), nn.silu(x), rtol=4e-6, atol=1e-30)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("mask", ["none", "causal", "tree", "batch"])
@pytest.mark.parametrize("L", [1, 3, 64, 65])
def test_attention_is_that_of_mlx(L, mask, dtype):
    S = L + 2
    queries, keys, values = normal(2, 6, L, 8), normal(2, 2, S, 8, seed=1), normal(2, 2, S, 8)
    arrays = [array.astype(dtype) for array in (queries, keys, values)]
    seen = (normal(2, 1, L, S, seed=2) < 0.5) | (mx.arange(S) == 0)
    chosen = {"none": None, "causal": "causal", "tree": seen[0, 0], "batch": seen}[mask]
    got = kernels.attend(*arrays, scale=0.3, mask=chosen)
    expected = mx.fast.scaled_dot_product_attention(*arrays, scale=0.3, mask=chosen)
    tolerance = 1e-5 if dtype == mx.float32 else 0.02
    assert got.dtype == dtype
    np.testing.assert_allclose(
        got.astype(mx.float32), expected.astype(mx.float32), rtol=tolerance, atol=tolerance
    )


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("L", [2, 70])
@pytest.mark.parametrize("mask", [None, "causal"])
def test_a_mask_serves_all_layers(mask, L):
    shared = kernels.SharedMask(mask)
    for seed in range(2):
        arrays = [normal(1, heads, L, 8, seed=seed) for heads in (4, 2, 2)]
        expected = mx.fast.scaled_dot_product_attention(*arrays, scale=0.3, mask=mask)
        got = kernels.attend(*arrays, scale=0.3, mask=shared)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("slow")
def test_a_key_that_is_not_seen_changes_nothing_however_large_it_is():
    queries, keys, values = normal(1, 1, 1, 4), normal(1, 1, 3, 4), normal(1, 1, 3, 4)
    seen = mx.array([[True, True, False]])
    loud = keys.at[:, :, 2].multiply(1e6)
    calm = kernels.attend(queries, keys, values, scale=1.0, mask=seen)
    assert mx.array_equal(calm, kernels.attend(queries, loud, values, scale=1.0, mask=seen))
