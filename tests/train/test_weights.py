"""Quantised weights are small, and close to the original ones."""

import mlx.core as mx
import numpy as np

from mlxspec.train.weights import pack, unpack


def normal(*shape):
    return mx.random.normal(shape, key=mx.random.key(0))


def test_matrices_are_quantised_and_the_rest_is_kept_in_bfloat16():
    tensors = {"a.weight": normal(4, 64), "b.weight": normal(4, 40), "norm.weight": normal(64)}
    packed, quantization = pack(tensors, 8)
    assert set(packed) == {"a.weight", "a.scales", "a.biases", "b.weight", "norm.weight"}
    assert {packed[name].dtype for name in ("b.weight", "norm.weight")} == {mx.bfloat16}
    got = mx.dequantize(packed["a.weight"], packed["a.scales"], packed["a.biases"], 64, 8)
    np.testing.assert_allclose(got.astype(mx.float32), tensors["a.weight"], atol=0.015)
    assert quantization == {"group_size": 64, "bits": 8}


def test_integers_stay_as_they_are():
    ids = mx.array([3, 70_000], mx.int32)
    packed, _ = pack({"target_ids": ids}, 4)
    assert mx.array_equal(packed["target_ids"], ids)
    assert packed["target_ids"].dtype == mx.int32


def test_a_module_may_have_bits_of_its_own_which_the_config_states():
    packed, quantization = pack(
        {"a.weight": normal(4, 64), "b.weight": normal(4, 64)}, 4, exceptions={"b": 8}
    )
    assert packed["b.weight"].nbytes == 2 * packed["a.weight"].nbytes
    assert quantization["b"] == {"group_size": 64, "bits": 8}


def test_what_was_packed_is_unpacked_under_its_names_in_float32():
    tensors = {
        "a.weight": normal(4, 64),
        "a.bias": normal(4),
        "b.weight": normal(4, 64),
        "norm.weight": normal(64),
        "target_ids": mx.array([1, 2]),
    }
    unpacked = unpack(*pack(tensors, 8, exceptions={"b": 4}))
    assert set(unpacked) == set(tensors)
    assert {unpacked[name].dtype for name in tensors if name != "target_ids"} == {mx.float32}
    for name, tolerance in {"a.weight": 0.015, "a.bias": 0.01, "b.weight": 0.2}.items():
        np.testing.assert_allclose(unpacked[name], tensors[name], atol=tolerance)
    assert mx.array_equal(unpacked["target_ids"], tensors["target_ids"])
