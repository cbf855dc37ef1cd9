"""Losses over a reduced output head, with their gradients worked out by hand.

For a small drafter the softmax over ten thousand tokens costs more than the drafter. The gradient
of a cross-entropy with respect to its logits is the difference of two distributions, so one pass
yields loss and gradient together, and logits are never kept for a second one.
"""

from typing import cast

import mlx.core as mx

from mlxspec.device.ops import exp

_Outputs = tuple[mx.array, ...]


def target_probs(final: mx.array, head: mx.array) -> mx.array:
    """Return the target's law (n, V') over a reduced head, renormalised.

    Args:
        final: (n, D) outputs of the target's final norm.
        head: (V', D) rows of its output head.
    """
    logits = final @ head.T
    weights = exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def soft_cross_entropy(hidden: mx.array, head: mx.array, probs: mx.array) -> mx.array:
    """Return the summed cross-entropy of a drafter's law against the target's.

    Args:
        hidden: (n, D) what the drafter gives to the head; only this has a gradient.
        head: (V', D) rows of the output head.
        probs: (n, V') the target's law.
    """
    loss, _ = cast(_Outputs, _loss_and_gradient(hidden, head, probs))
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
    """Return the summed cross-entropy against some tokens' probabilities; the head learns too.

    Args:
        hidden: (n, D) what is given to the head.
        head: (V', D) the head.
        tokens: (n, k) int32 rows of the head, -1 for what the head does not have.
        probs: (n, k) their probabilities; they are renormalised over the tokens that exist.
    """
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
