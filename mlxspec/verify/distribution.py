"""From logits to the target's distribution p of the next token, and a draw from p.

The steps, in order: logits, logit bias, penalties, then temperature and filters in the order of
Hugging Face's warpers or of mlx-lm's sampler (`filter_order`). The sampling params *define* p.
Verification keeps p exactly, so a draft never changes it.

Penalties depend on the tokens before the next one. In a tree every node has a different text
before it, so tokens are counted along each node's own path.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx

from mlxspec.device.exponential import log_sum_exp, softmax, softmax_and_log_total
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import SamplingParams
from mlxspec.verify.filters import filtered
from mlxspec.verify.noise import draw, draw_several


class NodeDistributions:
    """The target's distribution of the next token after each of n nodes; everything is lazy.

    `logits` are the target's (n, V) float32 output, and `adjusted` those after processors, bias and
    penalties: `logits` itself if there are none.
    """

    def __init__(
        self, sampling: SamplingParams, logits: mx.array, adjusted: mx.array | None = None
    ) -> None:
        """Apply sampling params to (n, V) logits; `adjusted` None applies only the bias."""
        self.sampling = sampling
        self.logits = logits.astype(mx.float32)
        self.adjusted = adjust(sampling, self.logits) if adjusted is None else adjusted

    @cached_property
    def probs(self) -> mx.array:
        """(n, V) float32 probabilities."""
        sampling, adjusted = self.sampling, self.adjusted
        if sampling.is_greedy:
            return (mx.arange(adjusted.shape[-1]) == self.best()[:, None]).astype(mx.float32)
        if adjusted is self.logits and sampling.temperature == 1 and not sampling.has_filters:
            return self._at_one[0]
        probs: mx.array = filtered(sampling, adjusted, _DeviceOperations())
        return probs

    @property
    def logprobs(self) -> mx.array:
        """(n, V) float32 logarithms of the probabilities before temperature and filters."""
        return self.adjusted - log_sum_exp(self.adjusted)[:, None]

    def best(self) -> mx.array:
        """Return the most probable token after each node, (n,) int32."""
        return mx.argmax(self.adjusted, axis=-1).astype(mx.int32)

    def draw(self, noise: mx.array) -> mx.array:
        """Return one draw per node, (n,) int32.

        `noise` is Gumbel noise for `noise.draw`; it is not used at temperature 0.
        """
        return self.best() if self.sampling.is_greedy else draw(self.probs, noise)

    def draw_several(self, noises: Sequence[mx.array]) -> mx.array:
        """Return k draws without replacement per node, (n, k) int32, one for each of k noises.

        If fewer than k tokens have mass, tokens without mass fill the rest.
        """
        if self.sampling.is_greedy:
            return top_tokens(self.adjusted, len(noises))[0]
        return draw_several(self.probs, noises)

    def prob_of(self, nodes: mx.array, tokens: mx.array) -> mx.array:
        """Return (m,) float32 probabilities of `tokens` after `nodes`, for display.

        At temperature 0 they would be only ones and zeros; temperature 1 is shown instead.
        """
        if not self.sampling.is_greedy:
            return self.probs[nodes, tokens]
        if self.adjusted is self.logits:
            return mx.exp(self.logits[nodes, tokens] - self._at_one[1][nodes])
        return mx.exp(self.adjusted[nodes, tokens] - log_sum_exp(self.adjusted)[nodes])

    def top_tokens(self, k: int) -> tuple[mx.array, mx.array]:
        """Return the target's k most probable tokens after each node, before all sampling params.

        Returns (n, k) int32 tokens, best first, and their float32 probabilities at temperature 1.
        """
        tokens, logits = top_tokens(self.logits, k)
        return tokens, mx.exp(logits - self._at_one[1][:, None])

    @cached_property
    def _at_one(self) -> tuple[mx.array, mx.array]:
        """The probabilities at temperature 1, and the (n,) logarithms of their normalisers."""
        return softmax_and_log_total(self.logits)


def top_tokens(logits: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """Return the k largest of (n, V) logits per row.

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
    """Return (n, m) tokens that contain the k best of each row.

    The k best lie in the k blocks with the largest maxima. So one pass over the row replaces a
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
    """How often each token occurs before each row, (n, V) int32."""

    in_context: mx.array  # in prompt and reply
    in_reply: mx.array

    @staticmethod
    def of(prompt: list[int], vocab_size: int) -> "TokenCounts":
        """Return one row of counts: those before a reply to `prompt`."""
        zeros = mx.zeros((1, vocab_size), mx.int32)
        tokens = mx.array(prompt, mx.int32)
        return TokenCounts(zeros.at[0, tokens].add(1), zeros)

    def add(self, tokens: list[int]) -> "TokenCounts":
        """Return the counts after `tokens` were added to the reply."""
        if not tokens:
            return self
        ids = mx.array(list(tokens), mx.int32)
        return TokenCounts(self.in_context.at[0, ids].add(1), self.in_reply.at[0, ids].add(1))

    def along(self, tree: DraftTree) -> "TokenCounts":
        """Return (n_nodes, V) counts before the token that follows each node.

        The root is already counted; every node adds the draft tokens of its path.
        """
        drafted = tree.tokens[1:]
        on_path = tree.ancestors[:, 1:].astype(mx.int32)  # (n_nodes, n_nodes - 1)
        zeros = mx.zeros((tree.n_nodes, self.in_reply.shape[1]), mx.int32)
        path = zeros if tree.n_nodes == 1 else zeros.at[:, drafted].add(on_path)
        return TokenCounts(self.in_context + path, self.in_reply + path)

    def last(self, count: int) -> "TokenCounts":
        """Return only the counts of the last rows."""
        return TokenCounts(self.in_context[-count:], self.in_reply[-count:])


def adjust(
    sampling: SamplingParams, logits: mx.array, counts: TokenCounts | None = None
) -> mx.array:
    """Return (n, V) float32 logits with bias and penalties applied.

    Without bias and penalties it returns float32 logits themselves. `counts` before each row are
    required for penalties.
    """
    if logits.dtype != mx.float32:
        logits = logits.astype(mx.float32)
    if sampling.logit_bias:
        most, width = max(sampling.logit_bias), logits.shape[-1]
        if most >= width:  # MLX would write outside the array
            raise ValueError(f"logit_bias names token {most}; allowed are 0 to {width - 1}")
        tokens = mx.array(list(sampling.logit_bias), mx.int32)
        logits = logits.at[:, tokens].add(mx.array(list(sampling.logit_bias.values())))
    if not sampling.has_penalties:
        return logits
    assert counts is not None, "penalties need the counts of the tokens before"
    divided = mx.where(
        logits > 0, logits / sampling.repetition_penalty, logits * sampling.repetition_penalty
    )
    logits = mx.where(counts.in_context > 0, divided, logits)
    reply = counts.in_reply.astype(mx.float32)
    return logits - sampling.presence_penalty * (reply > 0) - sampling.frequency_penalty * reply


class _DeviceOperations:
    """The operations of n rows, (n, V), lazy."""

    def where(self, condition: mx.array, chosen: mx.array, other: float) -> mx.array:
        return mx.where(condition, chosen, other)

    def softmax(self, logits: mx.array) -> mx.array:
        return softmax(logits)

    def are_best(self, logits: mx.array, k: int) -> mx.array:
        last = mx.topk(logits, k, axis=-1).min(axis=-1, keepdims=True)
        is_above, is_tied = logits > last, logits == last
        room = k - is_above.sum(axis=-1, keepdims=True)
        return is_above | (is_tied & (mx.cumsum(is_tied.astype(mx.int32), axis=-1) <= room))

    def are_nucleus(self, probs: mx.array, mass: float) -> mx.array:
        ordered = -mx.sort(-probs, axis=-1)
        above = mx.cumsum(ordered, axis=-1, inclusive=False)  # mass of the more probable tokens
        # `above` is less than mass also for the token that reaches it, so that token stays.
        floor = mx.where(above < mass, ordered, mx.inf).min(axis=-1, keepdims=True)
        return probs >= floor

    def are_among(self, tokens: Sequence[int], vocab_size: int) -> mx.array:
        ids = mx.array(list(tokens), mx.int32)
        return (mx.arange(vocab_size)[:, None] == ids).any(axis=-1)
