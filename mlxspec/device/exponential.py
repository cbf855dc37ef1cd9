"""Exponentials, by way of a power where MLX's own are slow.

On x86 MLX computes both one element at a time, but `exp` takes 12 ns and `power` 5 ns; in a
forward of a small model the former is more than its matrix products take. Raising e, rounded to
float32, to x is off by x times 3e-8 of the result, as much as rounding x itself.
"""

import math

import mlx.core as mx

from mlxspec.device import backend


def exp(x: mx.array) -> mx.array:
    """Return the exponential of an array of any shape, exactly 0 at minus infinity."""
    return mx.power(math.e, x) if is_slow(x) else mx.exp(x)


def log_sum_exp(x: mx.array) -> mx.array:
    """Return the (...) logarithms of the summed exponentials of (..., n) numbers."""
    return softmax_and_log_total(x)[1] if is_slow(x) else mx.logsumexp(x, axis=-1)


def softmax(x: mx.array) -> mx.array:
    """Return the exponentials of (..., n) numbers as shares of their sum."""
    return softmax_and_log_total(x)[0] if is_slow(x) else mx.softmax(x, axis=-1, precise=True)


def softmax_and_log_total(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return `softmax(x)` and `log_sum_exp(x)`, which share their exponentials where they are slow.

    What is not evaluated is not computed.
    """
    if not is_slow(x):
        return softmax(x), log_sum_exp(x)
    most = x.max(axis=-1, keepdims=True)
    weights = exp(x - most)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / total, (mx.log(total) + most)[..., 0]


def is_slow(x: mx.array) -> bool:
    """Return whether MLX's own exponential of an array like `x` takes longer than a power."""
    return backend.lacks_accelerate() and x.dtype == mx.float32
