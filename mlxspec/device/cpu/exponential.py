"""Exponentials by way of a power, and what is made of them.

On x86 MLX computes both one element at a time, but `exp` takes 12 ns and `power` 5 ns; in a
forward of a small model the former is more than its matrix products take. Raising e, rounded to
float32, to x is off by x times 3e-8 of the result, as much as rounding x itself. Of other types
than float32 MLX's own are taken.
"""

import math

import mlx.core as mx

from mlxspec.device import core_split, fused


def exp(x: mx.array) -> mx.array:
    """Return the exponential, exactly 0 at minus infinity."""
    return mx.power(math.e, x) if x.dtype == mx.float32 else mx.exp(x)


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x)."""
    return x / (1.0 + mx.power(1 / math.e, x)) if x.dtype == mx.float32 else fused.silu(x)


def softmax(x: mx.array) -> mx.array:
    """Return the exponentials of (..., n) numbers as shares of their sum."""
    return _shares(x)[0] if x.dtype == mx.float32 else fused.softmax(x)


def log_sum_exp(x: mx.array) -> mx.array:
    """Return the (...) logarithms of the summed exponentials of (..., n) numbers."""
    return _shares(x)[1] if x.dtype == mx.float32 else fused.log_sum_exp(x)


def softmax_and_log_total(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return `softmax(x)` and `log_sum_exp(x)` of (m, n) numbers, by the same exponentials."""
    if x.dtype != mx.float32:
        return fused.softmax(x), fused.log_sum_exp(x)
    half = x.shape[0] // 2
    if half == 0 or core_split.count() < 2:  # cutting rows copies them
        return _shares(x)
    halves = core_split.together(lambda: _shares(x[:half]), lambda: _shares(x[half:]))
    probs, log_total = (mx.concatenate(list(pair)) for pair in zip(*halves, strict=True))
    return probs, log_total


def _shares(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return shares and the logarithm of their sum; what is not evaluated is not computed."""
    most = x.max(axis=-1, keepdims=True)
    weights = exp(x - most)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / total, (mx.log(total) + most)[..., 0]
