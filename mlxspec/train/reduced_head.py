"""A target's output head, reduced to the tokens that a drafter can propose, and losses over it.

A head of mlx-lm is a function, so its matrix is computed from its outputs for the unit vectors.
Some add a bias or cap their logits (Gemma 2, Team Gemma 2024, https://arxiv.org/abs/2408.00118).
For a small drafter, the softmax over ten thousand tokens costs more than the drafter itself. So one
pass computes loss and gradient together, and the logits need not stay in memory.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx import nn

from mlxspec.device.exponential import exp
from mlxspec.errors import UnsupportedOperationError
from mlxspec.models import TargetModel

_Outputs = tuple[mx.array, ...]
_UNIT_ROWS = 64  # unit vectors at a time: their logits take memory
_SAME = 0.05  # of the largest logit; half precision rounds, another function changes far more
_SCALES = (1.0, 4.0, 16.0, 64.0)  # of the probes: a cap shows only in large logits
_CAP_STEPS = 30
_TINY = 1e-6
_BELOW_1 = 1 - 1e-6


@dataclass(frozen=True)
class ReducedHead:
    """Rows of an output head."""

    weight: mx.array  # (n, D) float32
    bias: mx.array | None = None  # (n,) float32
    cap: float | None = None  # the logits x become cap * tanh(x / cap)

    @property
    def is_plain(self) -> bool:
        return self.bias is None and self.cap is None

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits (..., n) of (..., D) inputs of the head."""
        logits = hidden @ self.weight.T
        if self.bias is not None:
            logits = logits + self.bias
        return logits if self.cap is None else self.cap * mx.tanh(logits / self.cap)


def dense(linear: Any) -> mx.array:
    """Return the float32 weight of a layer, whether it is quantised or not."""
    weight: mx.array = linear.weight
    if "scales" in linear:
        biases, mode = linear.get("biases"), getattr(linear, "mode", "affine")
        weight = mx.dequantize(
            weight, linear.scales, biases, linear.group_size, linear.bits, mode=mode
        )
    return weight.astype(mx.float32)


def reduced_head(model: TargetModel, target_ids: mx.array) -> ReducedHead:
    """Return the rows of a target's output head for (n,) int32 tokens."""
    rows = model.head_rows(target_ids)
    if isinstance(rows, nn.Module):
        return ReducedHead(dense(rows))
    return _found(
        lambda x: rows(x.astype(model.dtype)).astype(mx.float32), model.config.hidden_size
    )


def _found(head: Callable[[mx.array], mx.array], width: int) -> ReducedHead:
    """Return the head that computes the same logits as a function; raises if there is none."""
    bias = head(mx.zeros((1, width)))[0]
    columns = []
    for start in range(0, width, _UNIT_ROWS):  # the whole head is computed for each of them
        units = mx.eye(min(_UNIT_ROWS, width - start), width, start)
        columns.append(head(units) - bias)
        mx.eval(columns[-1])
    found = ReducedHead(mx.concatenate(columns).T, bias if mx.any(bias).item() else None)
    probes = mx.random.normal((len(_SCALES), width), key=mx.random.key(0))
    probes = probes * mx.array(_SCALES)[:, None]
    true = head(probes)
    if not _are_same(found.logits(probes), true):
        cap = _cap(found.logits(probes), true)
        # the logits of the unit vectors were capped, too
        weight = cap * mx.arctanh(mx.clip(found.weight / cap, -_BELOW_1, _BELOW_1))
        found = ReducedHead(weight, found.bias, cap)
        if not _are_same(found.logits(probes), true):
            raise UnsupportedOperationError(
                "the output head of this model does more than multiply with a matrix, add a bias "
                "and cap the logits, so no head can be trained on them: train a table or a "
                "draft model, or use 'pool', which needs no training"
            )
    return found


def _cap(raw: mx.array, true: mx.array) -> float:
    """Return the cap that maps the largest of the raw logits to the largest of the true ones."""
    largest, capped = (max(float(np.array(mx.abs(x).max())), _TINY) for x in (raw, true))
    cap = capped
    for _ in range(_CAP_STEPS):
        cap = capped / max(math.tanh(largest / cap), _TINY)
    return cap


def _are_same(found: mx.array, true: mx.array) -> bool:
    off = mx.abs(found - true).max(axis=-1) < _SAME * mx.abs(true).max(axis=-1)
    return bool(off.all().item())


# ---- losses over it, with gradients that are derived by hand ------------------------------------


def target_probs(final: mx.array, head: ReducedHead) -> mx.array:
    """Return the target's (n, V') probabilities over V' rows of its head, renormalised."""
    logits = head.logits(final)
    weights = exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def soft_cross_entropy(hidden: mx.array, head: ReducedHead, probs: mx.array) -> mx.array:
    """Return the cross-entropy of the drafter's distributions against the target's, summed.

    `hidden` (n, D) are the drafter's inputs of the head; only these have a gradient. `probs`
    (n, V') are the target's probabilities over the V' rows of the head.
    """
    if not head.is_plain:  # a rare form, whose gradient MLX derives
        logits = head.logits(hidden)
        return mx.logsumexp(logits, axis=-1).sum() - (probs * logits).sum()
    loss, _ = cast(_Outputs, _loss_and_gradient(hidden, head.weight, probs))
    return loss


@mx.custom_function
def _loss_and_gradient(
    hidden: mx.array, head: mx.array, probs: mx.array
) -> tuple[mx.array, mx.array]:
    logits = hidden @ head.T
    shifted = logits - logits.max(axis=-1, keepdims=True)
    weights = exp(shifted)
    total = weights.sum(axis=-1, keepdims=True)
    loss = mx.log(total).sum() - (probs * shifted).sum()
    return loss, (weights / total - probs) @ head


@_loss_and_gradient.vjp
def _gradient(primals: _Outputs, cotangents: _Outputs, outputs: _Outputs) -> _Outputs:
    _, head, probs = primals
    return cotangents[0] * outputs[1], mx.zeros_like(head), mx.zeros_like(probs)


def tied_cross_entropy(
    hidden: mx.array, head: mx.array, tokens: mx.array, probs: mx.array
) -> mx.array:
    """Return the cross-entropy against the probabilities of a few tokens, summed.

    Both `hidden` (n, D) and `head` (V', D) have a gradient. `tokens` (n, k) int32 are rows of the
    head, -1 for a token without one; `probs` are renormalised over the others.
    """
    # the lower bound keeps a row without any token finite: all its labels are 0
    known = mx.where(tokens >= 0, probs, 0.0)
    wanted = known / mx.maximum(known.sum(axis=-1, keepdims=True), 1e-6)
    loss, *_ = cast(_Outputs, _tied_loss(hidden, head, mx.maximum(tokens, 0), wanted))
    return loss


@mx.custom_function
def _tied_loss(
    hidden: mx.array, head: mx.array, tokens: mx.array, wanted: mx.array
) -> tuple[mx.array, mx.array, mx.array]:
    logits = hidden @ head.T
    shifted = logits - logits.max(axis=-1, keepdims=True)
    weights = exp(shifted)
    total = weights.sum(axis=-1, keepdims=True)
    counted = wanted.sum(axis=-1, keepdims=True)  # 1, or 0 where no token of the head is wanted
    picked = mx.take_along_axis(shifted, tokens, axis=-1)
    loss = (mx.log(total) * counted).sum() - (wanted * picked).sum()
    rows = mx.arange(hidden.shape[0])[:, None]
    difference = (weights * (counted / total)).at[rows, tokens].add(-wanted)
    return loss, difference @ head, difference.T @ hidden


@_tied_loss.vjp
def _tied_gradient(primals: _Outputs, cotangents: _Outputs, outputs: _Outputs) -> _Outputs:
    _, _, tokens, wanted = primals
    for_hidden, for_head = (cotangents[0] * output for output in outputs[1:])
    return for_hidden, for_head, mx.zeros_like(tokens), mx.zeros_like(wanted)
