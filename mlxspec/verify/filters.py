"""Temperature and filters: from adjusted logits to the probabilities of the next token.

The device computes the rows of all nodes at once, lazily (`distribution.py`); the host computes the
row of a node that it has reached (`on_host.py`). Their operations differ, but the distribution is
defined once, here.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, log
from typing import Any, Protocol

from mlxspec.params import FilterOrder, SamplingParams

Rows = Any
"""An `mx.array` or a NumPy array; its last axis is the vocabulary, V."""

_LEAST_MASS = 1e-30
"""A smaller top-p is 0 in float32, and no token would be left."""


class Operations(Protocol):
    """The operations whose names differ between `mx.array` and NumPy arrays."""

    def where(self, condition: Rows, chosen: Rows, other: Rows) -> Rows:
        """Return `chosen` where the condition is true, else `other`."""

    def softmax(self, logits: Rows) -> Rows:
        """Return the softmax over the last axis, float32."""

    def are_best(self, logits: Rows, k: int) -> Rows:
        """Return bool, True at the k largest; in a tie the lowest ids win. k is at most V."""

    def are_nucleus(self, probs: Rows, mass: float) -> Rows:
        """Return bool, True at the most probable tokens that reach `mass`, and at their ties."""

    def are_among(self, tokens: Sequence[int], vocab_size: int) -> Rows:
        """Return (V,) bool, True at these tokens."""


def filtered(sampling: SamplingParams, logits: Rows, on: Operations) -> Rows:
    """Return float32 probabilities of the next token, shaped as `logits`.

    The temperature must not be 0. The logits are adjusted, float32.
    """
    probs = _applied(sampling, logits, on, _FILTERS)
    # XTC tosses a coin per token. The mixture of both cases is its exact distribution, so p itself
    # is not random and a draft can be verified against it.
    if not sampling.xtc_probability:
        return probs
    excluding = _applied(sampling, logits, on, {**_FILTERS, "xtc": _xtc})
    return (1 - sampling.xtc_probability) * probs + sampling.xtc_probability * excluding


Filter = Callable[[SamplingParams, Rows, Operations], Rows | None]
"""Returns which tokens to keep for logits, bool of their shape; None for all.

Tokens that an earlier filter removed have logit -inf.
"""

_ORDERS: dict[FilterOrder, tuple[str, ...]] = {
    "hugging-face": ("temperature", "top_k", "top_p", "min_p", "xtc"),
    "mlx-lm": ("top_p", "min_p", "xtc", "top_k", "temperature"),
}


def _applied(
    sampling: SamplingParams, logits: Rows, on: Operations, filters: Mapping[str, Filter]
) -> Rows:
    """Return float32 probabilities after temperature and filters in the order of `sampling`."""
    for step in _ORDERS[sampling.filter_order]:
        if step == "temperature":
            logits = logits if sampling.temperature == 1 else logits / sampling.temperature
        elif step in filters and (kept := filters[step](sampling, logits, on)) is not None:
            logits = on.where(kept, logits, -inf)
    return on.softmax(logits)


def _top_k(sampling: SamplingParams, logits: Rows, on: Operations) -> Rows | None:
    return on.are_best(logits, sampling.top_k) if 0 < sampling.top_k < logits.shape[-1] else None


def _top_p(sampling: SamplingParams, logits: Rows, on: Operations) -> Rows | None:
    mass = max(sampling.top_p, _LEAST_MASS)
    return on.are_nucleus(on.softmax(logits), mass) if mass < 1 else None


def _min_p(sampling: SamplingParams, logits: Rows, on: Operations) -> Rows | None:
    if not sampling.min_p:
        return None
    # p >= min_p * max(p), in logits: no softmax is needed.
    kept = logits >= logits.max(axis=-1, keepdims=True) + log(sampling.min_p)
    least = min(sampling.min_tokens_to_keep, logits.shape[-1])
    return kept | on.are_best(logits, least) if least > 1 else kept


def _xtc(sampling: SamplingParams, logits: Rows, on: Operations) -> Rows:
    """Exclude all tokens above the threshold except the least probable of them."""
    probs = on.softmax(logits)
    choices = on.where(probs > sampling.xtc_threshold, probs, inf)
    kept = probs <= choices.min(axis=-1, keepdims=True)
    return kept | on.are_among(sampling.xtc_special_tokens, logits.shape[-1])


_FILTERS: dict[str, Filter] = {"top_k": _top_k, "top_p": _top_p, "min_p": _min_p}
