"""The distribution q of a drafter below a root, and draws from it.

Drafters that draw one token after the other share these parts: they apply the target's sampling
params to their own logits, count the tokens of reply and draft, take noise for every draw, and make
a draft that states q.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.drafts.draft import Draft
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import SamplingParams
from mlxspec.verify.distribution import NodeDistributions, TokenCounts, adjust
from mlxspec.verify.gumbel import gumbel
from mlxspec.verify.noise import Noise


class DraftDistribution:
    """The target's sampling params for one reply, applied to a drafter's logits.

    At temperature 0 a draw is the most probable token.
    """

    def __init__(
        self,
        sampling: SamplingParams,
        key: mx.array,
        prompt: Sequence[int],
        width: int,
        shared: Noise | None = None,
    ) -> None:
        """Start a reply to `prompt`, all tokens of the conversation so far.

        `key` is the drafter's own random key; `shared`, the noise of the target's tokens, replaces
        it. `width` is the size of the target's vocabulary.
        """
        self.sampling = sampling
        self._key, self._width = key, width
        self._shared, self._position = shared, len(prompt)
        self._counts = TokenCounts.of(list(prompt), width) if sampling.has_penalties else None

    @property
    def is_random(self) -> bool:
        """Whether tokens are drawn with the drafter's own noise, so the draft must state q."""
        return not self.sampling.is_greedy and self._shared is None

    def after(
        self, logits: mx.array, tree: DraftTree, target_ids: mx.array | None = None
    ) -> NodeDistributions:
        """Return q of the token after each of the last k nodes of a tree.

        `logits` are the drafter's, (k, V_draft). `tree` is the tree drafted so far, the root
        included. `target_ids` is the (V_draft,) int32 target token of each logit; None where they
        are equal.
        """
        logits = spread(logits, target_ids, self._width)
        if self._counts is None:
            return NodeDistributions(self.sampling, logits)
        counts = self._counts.along(tree).last(logits.shape[0])
        return NodeDistributions(self.sampling, logits, adjust(self.sampling, logits, counts))

    def draw(self, distributions: NodeDistributions, depth: int, count: int = 1) -> mx.array:
        """Draw `count` children without replacement after each of n nodes.

        `depth` is that of the children, from 1. Returns (n * count,) int32 tokens, siblings next to
        each other in the order of their draws.
        """
        if self._shared is not None:
            # All nodes of a depth share the noise, as in the target's draws. Siblings share it
            # too: the second is what the target would draw if the first were impossible.
            noises = [self._shared.at(self._position + depth - 1).gumbel(1, self._width)] * count
        else:
            self._key, key = mx.random.split(self._key)
            noises = list(
                mx.split(gumbel(count * distributions.logits.shape[0], self._width, key), count)
            )
        return (
            distributions.draw(noises[0])
            if count == 1
            else distributions.draw_several(noises).reshape(-1)
        )

    def count(self, emitted: Sequence[int]) -> None:
        self._position += len(emitted)
        if self._counts:
            self._counts = self._counts.add(list(emitted))

    def draft(
        self,
        name: str,
        tokens: Sequence[mx.array],
        distributions: Sequence[NodeDistributions],
        branching: TreeShape | None = None,
    ) -> Draft:
        """Return the draft of a tree; it states q if tokens were drawn at random.

        `tokens` are the int32 tokens of each depth, the root first; they may be lazy.
        `distributions` follow the nodes of each depth but the last. `branching` is the shape of the
        tree; None for a chain.
        """
        branching = branching or TreeShape((1,) * len(distributions))
        probs = [
            q.prob_of(mx.repeat(mx.arange(q.logits.shape[0]), width), drawn)
            for q, drawn, width in zip(distributions, tokens[1:], branching.widths, strict=True)
        ]
        return Draft(
            tree=branching.tree(mx.concatenate(list(tokens))),
            sources=(name,) * (len(branching.parents) - 1),
            node_probs=mx.concatenate(probs),
            sampled_from=mx.concatenate([q.probs for q in distributions])
            if self.is_random
            else None,
            branching=branching if self.is_random and not branching.is_chain else None,
        )


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
