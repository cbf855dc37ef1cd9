"""The law of a drafter along a chain: what its tokens are drawn from, and how.

Drafters that say one token after the other need the same few things: the target's filters and
penalties on logits of their own, counts that follow the reply and the chain, noise for every draw,
and a draft that states what its tokens were drawn from.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.draft import Draft
from mlxspec.draws import gumbel
from mlxspec.drafters.reduced_head import spread
from mlxspec.law import Law
from mlxspec.noise import Noise
from mlxspec.sampling import NodeLaws, TokenCounts
from mlxspec.tree import DraftTree


class ChainLaw:
    """The target's law of one reply, over a drafter's logits.

    Attributes:
        law: The law; a greedy one takes the most probable token.
    """

    def __init__(
        self,
        law: Law,
        key: mx.array,
        prompt: Sequence[int],
        width: int,
        shared: Noise | None = None,
    ) -> None:
        """Begin a reply.

        Args:
            law: The law to draw from.
            key: Random key of the drafter's own.
            prompt: All tokens of the conversation so far.
            width: Size of the target's vocabulary.
            shared: The noise of the target's tokens, to draw with instead of the key.
        """
        self.law = law
        self._key, self._width = key, width
        self._shared, self._position = shared, len(prompt)
        self._counts = TokenCounts.of(list(prompt), width) if law.has_penalties else None

    @property
    def is_random(self) -> bool:
        """Whether a chain is drawn with noise that is its own: the match rule would not do."""
        return not self.law.is_greedy and self._shared is None

    def after(
        self, logits: mx.array, chain: mx.array, target_ids: mx.array | None = None
    ) -> NodeLaws:
        """Return the law of the token after a chain.

        Args:
            logits: (1, V_draft) of the drafter.
            chain: (n,) int32 tokens of the chain, the root first.
            target_ids: (V_draft,) int32 target token of each logit; None where they agree.
        """
        logits = spread(logits, target_ids, self._width)
        if self._counts is None:
            return NodeLaws(self.law, logits)
        return NodeLaws(self.law, logits, self._counts.along(DraftTree.chain(chain)).last())

    def draw(self, laws: NodeLaws, depth: int) -> mx.array:
        """Return a (1,) int32 token, the one at a depth of the chain, from 1."""
        if self._shared is not None:
            noise = self._shared.at(self._position + depth - 1)
            return laws.draw(noise.gumbel(1, self._width))
        self._key, key = mx.random.split(self._key)
        return laws.draw(gumbel((1, self._width), key))

    def count(self, emitted: Sequence[int]) -> None:
        """Take note of tokens that the reply went on with."""
        self._position += len(emitted)
        if self._counts:
            self._counts = self._counts.add(list(emitted))

    def draft(self, name: str, tokens: Sequence[mx.array], laws: Sequence[NodeLaws]) -> Draft:
        """Return the draft of a chain; where tokens were drawn at random, it says what from.

        Args:
            name: Of the drafter.
            tokens: (1,) int32 each, the root first; they may be lazy.
            laws: Of each token but the root.
        """
        first = mx.array([0])
        probs = [law.prob_of(first, token) for law, token in zip(laws, tokens[1:], strict=True)]
        return Draft(
            tree=DraftTree.chain(mx.concatenate(list(tokens))),
            sources=(name,) * len(laws),
            node_probs=mx.concatenate(probs),
            sampled_from=mx.concatenate([law.probs for law in laws]) if self.is_random else None,
        )
