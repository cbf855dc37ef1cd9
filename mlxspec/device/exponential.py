"""Exponentials, and the functions that use them.

On x86 MLX computes exponentials and powers one element at a time, but `exp` takes 12 ns and `power`
5 ns. In a forward of a small model `exp` takes longer than the matrix products. So a CPU without
Apple's libraries computes a power of e in float32. As e is rounded to float32, the power has a
relative error of x times 3e-8, the same as rounding x causes.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from mlxspec.device import backend, core_split, turns


def exp(x: mx.array) -> mx.array:
    """Return the exponential of an array of any shape, exactly 0 at minus infinity."""
    return mx.power(math.e, x) if _is_power(x) else mx.exp(x)


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x), of any shape."""
    if _is_power(x):
        return x / (1.0 + mx.power(1 / math.e, x))
    result: mx.array = nn.silu(x) if turns.may_compile() else x * mx.sigmoid(x)
    return result


def softmax(x: mx.array) -> mx.array:
    """Return the softmax of (..., n) numbers over the last axis."""
    return _shares(x)[0] if _is_power(x) else mx.softmax(x, axis=-1, precise=True)


def log_sum_exp(x: mx.array) -> mx.array:
    """Return the log-sum-exp of (..., n) numbers over the last axis, of shape (...)."""
    return _shares(x)[1] if _is_power(x) else mx.logsumexp(x, axis=-1)


def softmax_and_log_total(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return `softmax(x)` and `log_sum_exp(x)` of (m, n) numbers.

    They share their exponentials where these are slow. Both are lazy: an unused one costs nothing.
    """
    if not _is_power(x):
        return softmax(x), log_sum_exp(x)
    half = x.shape[0] // 2
    if half == 0 or core_split.count() < 2:  # one core: do not cut, as cutting copies the rows
        return _shares(x)
    halves = core_split.together(lambda: _shares(x[:half]), lambda: _shares(x[half:]))
    probs, log_total = (mx.concatenate(list(pair)) for pair in zip(*halves, strict=True))
    return probs, log_total


def _is_power(x: mx.array) -> bool:
    return x.dtype == mx.float32 and backend.lacks_accelerate()


def _shares(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return softmax and log-sum-exp of the rows, by one exponential."""
    most = x.max(axis=-1, keepdims=True)
    weights = exp(x - most)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / total, (mx.log(total) + most)[..., 0]
