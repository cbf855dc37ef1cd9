"""Losses over a reduced output head, with gradients that are derived by hand.

For a small drafter, the softmax over ten thousand tokens costs more than the drafter itself. So one
pass computes loss and gradient together, and the logits need not stay in memory.
"""

from typing import cast

import mlx.core as mx

from mlxspec.device.exponential import exp
from mlxspec.train.reduced_head import ReducedHead

_Outputs = tuple[mx.array, ...]


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
