"""The common part of drafters that draw their tokens from a distribution q of their own.

They apply the target's sampling params to their own logits, count the tokens of reply and draft,
take noise for every draw, and make a draft that states q.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import mlx.core as mx

from mlxspec.drafters.base import Drafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import GREEDY, SamplingParams
from mlxspec.verify.distribution import NodeDistributions, TokenCounts, adjust
from mlxspec.verify.noise import Noise, gumbel


class DrawingDrafter(Drafter):
    """Draws from its own distribution q; at temperature 0 a draw is the most probable token."""

    # The target's params in this reply; temperature 0 if `samples` is False.
    sampling: SamplingParams = GREEDY

    def __init__(self, vocab_size: int, lookahead: int, samples: bool) -> None:
        """`vocab_size` is the width of the target's logits, `lookahead` the longest path."""
        if lookahead < 1:
            raise ValueError(f"lookahead must be 1 or more; got {lookahead}")
        self.lookahead, self.samples = lookahead, samples
        self._width = vocab_size
        self._shared: Noise | None = None

    @property
    def depth(self) -> int:
        return self.limits.depth or self.lookahead

    @property
    def is_random(self) -> bool:
        """Whether tokens are drawn with the drafter's own noise, so the draft must state q."""
        return not self.sampling.is_greedy and self._shared is None

    def couple(self, noise: Noise | None) -> None:
        self._shared = noise

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        self.sampling = sampling if self.samples else replace(sampling, temperature=0.0)
        self._key, self._position = key, len(prompt)
        has_penalties = self.sampling.has_penalties
        self._counts = TokenCounts.of(list(prompt), self._width) if has_penalties else None
        self._uncounted: list[int] = []  # counted by the next draft: until then nobody evaluates it

    def update(self, round: Round) -> None:
        emitted = [*round.accepted, round.bonus_token]
        self._position += len(emitted)
        if self._counts:
            self._uncounted += emitted

    def grow(
        self,
        root: int,
        shape: TreeShape,
        next_logits: Callable[[DraftTree, mx.array], mx.array],
        target_ids: mx.array | None = None,
    ) -> Draft:
        """Return a draft of this shape, drawn level by level; it states q if that is random.

        `next_logits(above, last)` returns the (k, V_draft) logits after each of the k last nodes of
        the tree drafted so far, whose tokens are `last`. `target_ids` as in `q_after`.
        """
        tokens, distributions, probs = [mx.array([root], mx.int32)], list[NodeDistributions](), []
        for depth, width in enumerate(shape.widths, 1):
            above = shape.tree(mx.concatenate(tokens))
            q = self.q_after(next_logits(above, tokens[-1]), above, target_ids)
            drawn = self.draw(q, depth, width)
            probs.append(q.prob_of(mx.repeat(mx.arange(q.logits.shape[0]), width), drawn))
            tokens.append(drawn)
            distributions.append(q)
        return Draft(
            tree=shape.tree(mx.concatenate(tokens)),
            sources=(self.name,) * (len(shape.parents) - 1),
            node_probs=mx.concatenate(probs),
            sampled_from=mx.concatenate([q.probs for q in distributions])
            if self.is_random
            else None,
            branching=shape if self.is_random and not shape.is_chain else None,
        )

    def q_after(
        self, logits: mx.array, tree: DraftTree, target_ids: mx.array | None = None
    ) -> NodeDistributions:
        """Return q of the token after each of the last k nodes of the tree drafted so far.

        `logits` are the drafter's, (k, V_draft). `target_ids` is the (V_draft,) int32 target token
        of each logit; None where they are equal.
        """
        logits = spread(logits, target_ids, self._width)
        if self._counts is None:
            return NodeDistributions(self.sampling, logits)
        self._counts, self._uncounted = self._counts.add(self._uncounted), []
        counts = self._counts.along(tree).last(logits.shape[0])
        return NodeDistributions(self.sampling, logits, adjust(self.sampling, logits, counts))

    def draw(self, distributions: NodeDistributions, depth: int, count: int = 1) -> mx.array:
        """Draw `count` children at `depth`, from 1, without replacement after each of n nodes.

        Returns (n * count,) int32 tokens, siblings next to each other in the order of their draws.
        """
        if self._shared is not None:
            # All nodes of a depth share the noise, as in the target's draws. Siblings share it
            # too: the second is what the target would draw if the first were impossible.
            noises = [self._shared.at(self._position + depth - 1).gumbel(1, self._width)] * count
        elif self.sampling.is_greedy:
            # No draw uses noise, so nobody would evaluate a new key, which refers to all before it.
            noises = [self._key] * count
        else:
            self._key, key = mx.random.split(self._key)
            num_draws = count * distributions.logits.shape[0]
            noises = list(mx.split(gumbel(num_draws, self._width, key), count))
        if count == 1:
            return distributions.draw(noises[0])
        return distributions.draw_several(noises).reshape(-1)


def spread(logits: mx.array, target_ids: mx.array | None, width: int) -> mx.array:
    """Return (n, width) float32 logits of the target's tokens; -inf where the drafter has none.

    `logits` are (n, V'), and `target_ids` the (V',) int32 target token of each; None where they are
    equal except for padding.
    """
    logits = logits.astype(mx.float32)
    if target_ids is not None:
        whole = mx.full((logits.shape[0], width), -mx.inf)
        whole[:, target_ids] = logits
        return whole
    missing = width - logits.shape[-1]
    if missing <= 0:
        return logits[:, :width]
    return mx.pad(logits, [(0, 0), (0, missing)], constant_values=-mx.inf)
