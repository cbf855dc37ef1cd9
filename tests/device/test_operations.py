"""The exponential by way of a power, what is built on it, and attention, against MLX's own."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlxspec.device import attention, backend, exponential
from mlxspec.device.attention import SharedMask
from mlxspec.device.packed import PackedRows, Quantization
from tests.support.device_facts import believe
from tests.support.pairwise import each_value, pairwise


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


@pytest.mark.usefixtures("slow")
def test_silu_is_that_of_mlx():
    x = normal(3, 7) * 20
    np.testing.assert_allclose(exponential.silu(x), nn.silu(x), rtol=4e-6, atol=1e-30)


@pairwise(
    L=[1, 3, 64, 65],
    mask=["none", "causal", "tree", "batch"],
    dtype=[mx.float32, mx.float16, mx.bfloat16],
    slow=[False, True],
    indirect=["slow"],
)
def test_attention_is_that_of_mlx(L, mask, dtype, slow):
    S = L + 2
    queries, keys, values = normal(2, 6, L, 8), normal(2, 2, S, 8, seed=1), normal(2, 2, S, 8)
    arrays = [array.astype(dtype) for array in (queries, keys, values)]
    seen = (normal(2, 1, L, S, seed=2) < 0.5) | (mx.arange(S) == 0)
    chosen = {"none": None, "causal": "causal", "tree": seen[0, 0], "batch": seen}[mask]
    got = attention.attend(*arrays, scale=0.3, mask=chosen)
    expected = mx.fast.scaled_dot_product_attention(*arrays, scale=0.3, mask=chosen)
    tolerance = 1e-5 if dtype == mx.float32 else 0.02
    assert got.dtype == dtype
    np.testing.assert_allclose(
        got.astype(mx.float32), expected.astype(mx.float32), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(
    ("num_rows", "groups", "head_dim", "expected"),
    [
        (8, 4, 128, 8),  # Llama 3: 32 queries a key head, as many as the kernel takes
        (4, 7, 128, 4),  # Qwen2.5 7B: 28
        (5, 7, 128, 4),
        (8, 7, 128, 4),
        (5, 8, 64, 4),  # Qwen2.5 3B
        (8, 8, 256, 4),
        (8, 5, 128, 6),
        (8, 6, 96, 5),
        (4, 16, 128, 2),
        (5, 16, 128, 9),  # three calls would be needed
        (8, 16, 256, 8),  # no kernel is better
        (3, 40, 128, 9),
        (1, 40, 128, 1),  # plain decoding is as it was
        (9, 8, 128, 9),
        (32, 8, 128, 32),
        (8, 8, 80, 8),  # the kernel has no such heads
        (8, 8, 192, 8),
    ],
)
def test_the_rows_of_a_call_are_what_a_kernel_takes(num_rows, groups, head_dim, expected):
    assert attention.rows_a_call(num_rows, groups, head_dim) == expected


@pytest.mark.parametrize(
    ("kind", "head_dim", "by_attend", "copies"),
    [
        ("gpu", 64, True, 0),  # MLX's kernel for many rows keeps none
        ("gpu", 128, False, 0),
        ("gpu", 256, True, 1),  # it has none for this size that is faster
        ("cpu", 64, False, 1),
        ("cpu", 64, True, 2),
    ],
)
def test_scores_are_held_where_no_kernel_does_without(
    kind, head_dim, by_attend, copies, monkeypatch
):
    believe(kind, monkeypatch.setattr)
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: kind == "cpu")
    assert attention.num_held_scores(head_dim, by_attend=by_attend) == copies


@pairwise(
    heads=[(14, 2), (16, 1)],
    L=[2, 3, 5, 8],
    mask=["none", "causal", "tree", "batch"],
    kind=["cpu", "gpu"],
)
def test_attention_in_several_calls_is_that_of_one(heads, L, mask, kind, monkeypatch):
    believe(kind, monkeypatch.setattr)
    (H, Hkv), D, S, calls = heads, 64, L + 6, []
    fused = mx.fast.scaled_dot_product_attention

    def called(queries, *arrays, **more):
        calls.append(queries.shape[2])
        return fused(queries, *arrays, **more)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", called)
    queries, keys, values = normal(2, H, L, D), normal(2, Hkv, S, D, seed=1), normal(2, Hkv, S, D)
    seen = np.array((normal(2, 1, L, S, seed=3) < 0.5) | (mx.arange(S) == 0))
    ago = np.arange(S - L, S)[:, None] - np.arange(S)
    seen = {"none": seen | True, "causal": (ago >= 0)[None, None], "tree": seen[:1]}.get(mask, seen)
    given = {"none": None, "causal": "causal", "tree": mx.array(seen[0, 0])}
    got = attention.attend(queries, keys, values, scale=0.1, mask=given.get(mask, mx.array(seen)))
    np.testing.assert_allclose(got, attention_by_hand(queries, keys, values, seen, 0.1), atol=3e-5)
    if kind == "gpu":
        few = {2: [2], 3: [3], 5: [4, 1], 8: [4, 4]}  # of 7 queries a key head
        many = {2: [2], 3: [2, 1], 5: [9], 8: [9]}  # of 16
        assert calls == (few if Hkv == 2 else many)[L]


@each_value(L=[2, 70], mask=[None, "causal"], slow=[False, True], indirect=["slow"])
def test_a_mask_serves_all_layers(mask, L, slow):
    shared = SharedMask(mask)
    for seed in range(2):
        arrays = [normal(1, heads, L, 8, seed=seed) for heads in (4, 2, 2)]
        expected = mx.fast.scaled_dot_product_attention(*arrays, scale=0.3, mask=mask)
        got = attention.attend(*arrays, scale=0.3, mask=shared)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("slow")
def test_a_key_that_is_not_seen_changes_nothing_however_large_it_is():
    queries, keys, values = normal(1, 1, 1, 4), normal(1, 1, 3, 4), normal(1, 1, 3, 4)
    seen = mx.array([[True, True, False]])
    loud = keys.at[:, :, 2].multiply(1e6)
    calm = attention.attend(queries, keys, values, scale=1.0, mask=seen)
    assert mx.array_equal(calm, attention.attend(queries, loud, values, scale=1.0, mask=seen))


# ---- packed keys and values ----------------------------------------------------------------


def attention_by_hand(queries, keys, values, seen, scale):
    """Grouped-query attention in NumPy float64, head by head."""
    queries, keys, values = (np.array(array, np.float64) for array in (queries, keys, values))
    group = queries.shape[1] // keys.shape[1]
    rows = np.zeros(queries.shape)
    for b, h in np.ndindex(*queries.shape[:2]):
        scores = scale * queries[b, h] @ keys[b, h // group].T
        weights = np.where(seen[b % len(seen), 0], np.exp(scores - scores.max()), 0)
        rows[b, h] = weights / weights.sum(axis=1, keepdims=True) @ values[b, h // group]
    return rows


def packed(rows, bits):
    """Rows as a quantised cache holds them, behind others, and what they stand for."""
    packing = Quantization.for_head_dim(bits, rows.shape[-1])
    planes = packing.pack(mx.pad(rows, [(0, 0), (0, 0), (0, 5), (0, 0)]))
    cut = tuple(plane[:, :, : rows.shape[2]] for plane in planes)
    return PackedRows(packing, cut), mx.dequantize(*cut, packing.group_size, bits)


DEVICES = ["cpu", "cpu with accelerate", "gpu"]


@pytest.fixture(params=DEVICES)
def is_cpu(request, monkeypatch):
    """Every device, as far as MLX's own functions tell."""
    monkeypatch.setattr(backend, "is_cpu", lambda: request.param != "gpu")
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: request.param == "cpu")
    return request.param != "gpu"


@pairwise(
    L=[1, 3, 64, 65],
    packing=[(4, 64), (8, 32), (8, 96)],
    mask=["none", "causal", "tree", "batch"],
    is_cpu=DEVICES,
    indirect=["is_cpu"],
)
def test_attention_over_packed_rows_is_that_over_what_they_stand_for(L, packing, mask, is_cpu):
    (bits, D), S = packing, L + 7
    queries = normal(2, 6, L, D) * 3
    (keys, plain_keys), (values, plain_values) = (
        packed(normal(2, 2, S, D, seed=seed), bits) for seed in (1, 2)
    )
    seen = np.array((normal(2, 1, L, S, seed=3) < 0.5) | (mx.arange(S) == 0))
    ago = np.arange(S - L, S)[:, None] - np.arange(S)
    seen = {"none": seen | True, "causal": (ago >= 0)[None, None], "tree": seen[:1]}.get(mask, seen)
    given = {"none": None, "causal": "causal", "tree": mx.array(seen[0, 0])}
    got = attention.attend(queries, keys, values, scale=0.3, mask=given.get(mask, mx.array(seen)))
    expected = attention_by_hand(queries, plain_keys, plain_values, seen, 0.3)
    np.testing.assert_allclose(got, expected, atol=3e-5)


@pytest.mark.parametrize("L", [1, 16, 64])
def test_a_gpu_multiplies_packed_rows_as_they_are_and_a_cpu_unpacks_them(L, is_cpu, monkeypatch):
    rows, _ = packed(normal(1, 2, L + 3, 32), 8)
    used = "unpacked" if is_cpu else "product"

    def refused(self, *_, **__):
        raise AssertionError("this is slow here")

    monkeypatch.setattr(PackedRows, "product" if used == "unpacked" else "unpacked", refused)
    out = attention.attend(normal(1, 4, L, 32), rows, rows, scale=1.0, mask="causal")
    assert out.shape == (1, 4, L, 32)


@pytest.mark.usefixtures("is_cpu")
@pytest.mark.parametrize(("dtype", "atol"), [(mx.float16, 0.01), (mx.bfloat16, 0.1)])
def test_half_precision_stays_half_over_packed_rows(dtype, atol):
    queries, rows = normal(1, 4, 2, 32).astype(dtype), normal(1, 2, 9, 32).astype(dtype)
    both, plain = packed(rows, 8)
    got = attention.attend(queries, both, both, scale=0.3, mask=None)
    everything = np.ones((1, 1, 2, 9), bool)
    wide = [array.astype(mx.float32) for array in (queries, plain, plain)]
    assert got.dtype == dtype
    expected = attention_by_hand(*wide, everything, 0.3)
    np.testing.assert_allclose(got.astype(mx.float32), expected, atol=atol)
