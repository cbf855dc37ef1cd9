"""From logits to the target's law, and a draw from it.

The law of the next token is, in this order: logits, logit bias, penalties, and then temperature
and filters as Hugging Face's warpers or as mlx-lm's sampler order them (`Law.filter_order`).
Whatever is set here *defines* the law; verification then keeps it exactly, so drafting never
changes it.

Penalties depend on what stands before a token. In a tree that is a different text at every node,
so the counts are taken along each node's own path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import mlx.core as mx

from mlxspec.device import core_split
from mlxspec.device.exponential import log_sum_exp, softmax, softmax_and_log_total
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import FilterOrder, Law
from mlxspec.verify.gumbel import draw, draw_several


class NodeLaws:
    """The target's law of the next token after each of n nodes; everything is lazy.

    Attributes:
        law: What was done to the logits.
        logits: (n, V) float32, as the target gave them.
        adjusted: (n, V) float32 logits after processors, bias and penalties; `logits` itself
            without them.
    """

    def __init__(
        self,
        law: Law,
        logits: mx.array,
        counts: "TokenCounts | None" = None,
        processed: mx.array | None = None,
    ) -> None:
        """Apply a law.

        Args:
            law: What to do.
            logits: (n, V).
            counts: What stands before each node; needed when the law has penalties.
            processed: (n, V) what a caller's own functions made of the logits, to go on with.
        """
        self.law = law
        self.logits = logits.astype(mx.float32)
        self.adjusted = _adjusted(law, self.logits if processed is None else processed, counts)

    @cached_property
    def probs(self) -> mx.array:
        """(n, V) float32 probabilities."""
        is_at_one = self.law.temperature == 1 and not self.law.has_filters
        is_the_model_s = self.adjusted is self.logits and is_at_one
        return self._at_one[0] if is_the_model_s else _probs(self.law, self.adjusted)

    @property
    def logprobs(self) -> mx.array:
        """(n, V) float32 logarithms of the probabilities before temperature and filters."""
        return self.adjusted - log_sum_exp(self.adjusted)[:, None]

    def best(self) -> mx.array:
        """Return (n,) int32: the most probable token after each node."""
        return mx.argmax(self.adjusted, axis=-1).astype(mx.int32)

    def draw(self, noise: mx.array) -> mx.array:
        """Return (n,) int32: one draw per node.

        Args:
            noise: As `draws.draw` takes it; not looked at where the law is greedy.
        """
        return self.best() if self.law.is_greedy else draw(self.probs, noise)

    def draw_several(self, noises: Sequence[mx.array]) -> mx.array:
        """Return (n, k) int32: draws without replacement per node, by as many noises.

        Where a law has fewer tokens, others without mass stand for those that are missing.
        """
        if self.law.is_greedy:
            return top_tokens(self.adjusted, len(noises))[0]
        return draw_several(self.probs, noises)

    def prob_of(self, nodes: mx.array, tokens: mx.array) -> mx.array:
        """Return (m,) float32 probabilities of `tokens` after `nodes`, for display.

        A greedy law would give only ones and zeros; temperature 1 is shown instead.
        """
        if not self.law.is_greedy:
            return self.probs[nodes, tokens]
        if self.adjusted is self.logits:
            return mx.exp(self.logits[nodes, tokens] - self._log_total[nodes])
        return mx.exp(self.adjusted[nodes, tokens] - log_sum_exp(self.adjusted)[nodes])

    def top_tokens(self, k: int) -> tuple[mx.array, mx.array]:
        """Return the target's k most probable tokens after each node, whatever the law.

        Returns:
            (n, k) int32 tokens, best first, and (n, k) float32 probabilities at temperature 1.
        """
        tokens, logits = top_tokens(self.logits, k)
        return tokens, mx.exp(logits - self._log_total[:, None])

    @cached_property
    def _at_one(self) -> tuple[mx.array, mx.array]:
        """The probabilities at temperature 1, and (n,) logarithms of what they were divided by."""
        half = self.logits.shape[0] // 2
        if half == 0 or core_split.count() < 2:  # cutting rows copies them
            return softmax_and_log_total(self.logits)
        shares = core_split.together(
            lambda: softmax_and_log_total(self.logits[:half]),
            lambda: softmax_and_log_total(self.logits[half:]),
        )
        probs, log_total = (mx.concatenate(list(pair)) for pair in zip(*shares, strict=True))
        return probs, log_total

    @property
    def _log_total(self) -> mx.array:
        return self._at_one[1]


def top_tokens(logits: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """Return the k largest logits per row.

    Args:
        logits: (n, V).
        k: How many.

    Returns:
        (n, k) int32 tokens, best first, and (n, k) their logits.
    """
    candidates = _best_blocks(logits, k)
    values = mx.take_along_axis(logits, candidates, axis=-1)
    best = mx.argsort(-values, axis=-1)[:, :k]
    tokens = mx.take_along_axis(candidates, best, axis=-1)
    return tokens.astype(mx.int32), mx.take_along_axis(values, best, axis=-1)


_BLOCK = 128


def _best_blocks(logits: mx.array, k: int) -> mx.array:
    """Return (n, m) candidate tokens that contain the k best of each row.

    The k best lie in the k blocks with the largest maxima: one pass over the row instead of a
    partial sort of it.
    """
    n, width = logits.shape
    blocks = width // _BLOCK
    if blocks <= k:
        return mx.broadcast_to(mx.arange(width), (n, width))
    maxima = logits[:, : blocks * _BLOCK].reshape(n, blocks, _BLOCK).max(axis=-1)
    best = mx.argpartition(-maxima, k - 1, axis=-1)[:, :k]
    inside = (best[..., None] * _BLOCK + mx.arange(_BLOCK)).reshape(n, k * _BLOCK)
    rest = mx.broadcast_to(mx.arange(blocks * _BLOCK, width), (n, width - blocks * _BLOCK))
    return mx.concatenate([inside, rest.astype(inside.dtype)], axis=-1)


@dataclass(frozen=True)
class TokenCounts:
    """How often each token stands before a row.

    Attributes:
        in_context: (n, V) int32 counts in prompt and reply.
        in_reply: (n, V) int32 counts in the reply alone.
    """

    in_context: mx.array
    in_reply: mx.array

    @staticmethod
    def of(prompt: list[int], vocab_size: int) -> "TokenCounts":
        """Return the counts, one row, before a reply to `prompt`."""
        zeros = mx.zeros((1, vocab_size), mx.int32)
        tokens = mx.array(prompt, mx.int32)
        return TokenCounts(zeros.at[0, tokens].add(1), zeros)

    def add(self, tokens: list[int]) -> "TokenCounts":
        """Return the counts after `tokens` were added to the reply."""
        if not tokens:
            return self
        ids = mx.array(tokens, mx.int32)
        return TokenCounts(self.in_context.at[0, ids].add(1), self.in_reply.at[0, ids].add(1))

    def along(self, tree: DraftTree) -> "TokenCounts":
        """Return (n_nodes, V) counts before the token that follows each node.

        The root is counted already; every node adds the drafted tokens of its path.
        """
        drafted = tree.tokens[1:]
        on_path = tree.ancestors[:, 1:].astype(mx.int32)  # (n_nodes, n_nodes - 1)
        zeros = mx.zeros((tree.n_nodes, self.in_reply.shape[1]), mx.int32)
        path = zeros if tree.n_nodes == 1 else zeros.at[:, drafted].add(on_path)
        return TokenCounts(self.in_context + path, self.in_reply + path)

    def last(self, count: int) -> "TokenCounts":
        """Return the counts of the last rows alone."""
        return TokenCounts(self.in_context[-count:], self.in_reply[-count:])


def _adjusted(law: Law, logits: mx.array, counts: "TokenCounts | None") -> mx.array:
    """Return (n, V) float32 logits with bias and penalties applied.

    Args:
        law: What to do.
        logits: (n, V) float32, returned as they are where there is nothing to do.
        counts: What stands before each row; needed when the law has penalties.

    Raises:
        ValueError: `logit_bias` names a token outside the vocabulary.
    """
    if law.logit_bias:
        most, width = max(law.logit_bias), logits.shape[-1]
        if most >= width:  # MLX would write outside the array
            raise ValueError(f"logit_bias names token {most}; allowed are 0 to {width - 1}")
        tokens = mx.array(list(law.logit_bias), mx.int32)
        logits = logits.at[:, tokens].add(mx.array(list(law.logit_bias.values())))
    if not law.has_penalties:
        return logits
    assert counts is not None, "a law with penalties needs the tokens that stand before"
    divided = mx.where(logits > 0, logits / law.repetition_penalty, logits * law.repetition_penalty)
    logits = mx.where(counts.in_context > 0, divided, logits)
    reply = counts.in_reply.astype(mx.float32)
    return logits - law.presence_penalty * (reply > 0) - law.frequency_penalty * reply


def _probs(law: Law, adjusted: mx.array) -> mx.array:
    """Return (n, V) float32 probabilities of the next token from adjusted logits."""
    if law.is_greedy:
        best = mx.argmax(adjusted, axis=-1, keepdims=True)
        return (mx.arange(adjusted.shape[-1]) == best).astype(mx.float32)
    probs = _filtered(law, adjusted, _FILTERS)
    if not law.xtc_probability:
        return probs
    excluding = _filtered(law, adjusted, {**_FILTERS, "xtc": _xtc})
    return (1 - law.xtc_probability) * probs + law.xtc_probability * excluding


Filter = Callable[[Law, mx.array], mx.array | None]
"""Says of (n, V) logits which tokens to keep; None for all. Those cut off before are at -inf."""

_ORDERS: dict[FilterOrder, tuple[str, ...]] = {
    "hugging-face": ("temperature", "top_k", "top_p", "min_p", "xtc"),
    "mlx-lm": ("top_p", "min_p", "xtc", "top_k", "temperature"),
}


def _filtered(law: Law, logits: mx.array, filters: dict[str, Filter]) -> mx.array:
    """Return (n, V) float32 probabilities after temperature and filters in the law's order."""
    for step in _ORDERS[law.filter_order]:
        if step == "temperature":
            logits = logits / law.temperature
        elif step in filters and (kept := filters[step](law, logits)) is not None:
            logits = mx.where(kept, logits, -mx.inf)
    return softmax(logits)


def _top_k(law: Law, logits: mx.array) -> mx.array | None:
    return _is_among_best(logits, law.top_k) if 0 < law.top_k < logits.shape[-1] else None


def _top_p(law: Law, logits: mx.array) -> mx.array | None:
    if law.top_p >= 1:
        return None
    probs = softmax(logits)
    ordered = -mx.sort(-probs, axis=-1)
    above = mx.cumsum(ordered, axis=-1, inclusive=False)  # mass of the tokens more probable
    floor = mx.where(above < law.top_p, ordered, mx.inf).min(axis=-1, keepdims=True)
    return probs >= floor


def _min_p(law: Law, logits: mx.array) -> mx.array | None:
    if not law.min_p:
        return None
    kept = logits >= logits.max(axis=-1, keepdims=True) + log(law.min_p)
    least = min(law.min_tokens_to_keep, logits.shape[-1])
    return kept | _is_among_best(logits, least) if least > 1 else kept


def _xtc(law: Law, logits: mx.array) -> mx.array:
    """Exclude the most probable choices; the least probable of them stays."""
    probs = softmax(logits)
    choices = mx.where(probs > law.xtc_threshold, probs, mx.inf)
    kept = probs <= choices.min(axis=-1, keepdims=True)
    tokens = mx.array(law.xtc_special_tokens, mx.int32)
    return kept | (mx.arange(logits.shape[-1])[:, None] == tokens).any(axis=-1)


_FILTERS: dict[str, Filter] = {"top_k": _top_k, "top_p": _top_p, "min_p": _min_p}


def _is_among_best(logits: mx.array, k: int) -> mx.array:
    """Return (n, V) bool: the k largest of each row; of tied ones those with the lowest ids."""
    last = mx.topk(logits, k, axis=-1).min(axis=-1, keepdims=True)
    is_above, is_tied = logits > last, logits == last
    room = k - is_above.sum(axis=-1, keepdims=True)
    return is_above | (is_tied & (mx.cumsum(is_tied.astype(mx.int32), axis=-1) <= room))
