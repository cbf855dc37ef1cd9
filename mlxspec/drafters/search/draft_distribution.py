"""The law of a drafter below a root: what its tokens are drawn from, and how.

Drafters that say one token after the other need the same few things: the target's filters and
penalties on logits of their own, counts that follow the reply and the draft, noise for every draw,
and a draft that states what its tokens were drawn from.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.drafters.search.reduced_head import spread
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.shape import Branching
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import Law
from mlxspec.verify.distribution import NodeLaws, TokenCounts
from mlxspec.verify.gumbel import gumbel
from mlxspec.verify.noise import Noise


class DraftLaw:
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
        """Whether tokens are drawn with noise that is its own: the match rule would not do."""
        return not self.law.is_greedy and self._shared is None

    def after(
        self, logits: mx.array, tree: DraftTree, target_ids: mx.array | None = None
    ) -> NodeLaws:
        """Return the law of the token after each of the last k nodes of a tree.

        Args:
            logits: (k, V_draft) of the drafter.
            tree: What was drafted so far, the root included.
            target_ids: (V_draft,) int32 target token of each logit; None where they agree.
        """
        logits = spread(logits, target_ids, self._width)
        if self._counts is None:
            return NodeLaws(self.law, logits)
        return NodeLaws(self.law, logits, self._counts.along(tree).last(logits.shape[0]))

    def draw(self, laws: NodeLaws, depth: int, count: int = 1) -> mx.array:
        """Return (n * count,) int32 tokens, drawn without replacement after each of n nodes.

        Args:
            laws: Of the nodes; their children stand side by side, in the order of their draws.
            depth: Of the children, from 1.
            count: Of children per node.
        """
        if self._shared is not None:  # nodes of a depth share it, as in the target's draws, and
            # siblings do: each is what would be drawn if those before it could not be
            noises = [self._shared.at(self._position + depth - 1).gumbel(1, self._width)] * count
        else:
            self._key, key = mx.random.split(self._key)
            noises = list(mx.split(gumbel(count * laws.logits.shape[0], self._width, key), count))
        return laws.draw(noises[0]) if count == 1 else laws.draw_several(noises).reshape(-1)

    def count(self, emitted: Sequence[int]) -> None:
        """Take note of tokens that the reply went on with."""
        self._position += len(emitted)
        if self._counts:
            self._counts = self._counts.add(list(emitted))

    def draft(
        self,
        name: str,
        tokens: Sequence[mx.array],
        laws: Sequence[NodeLaws],
        branching: Branching | None = None,
    ) -> Draft:
        """Return the draft of a tree; where tokens were drawn at random, it says what from.

        Args:
            name: Of the drafter.
            tokens: int32 tokens of each depth, the root's first; they may be lazy.
            laws: Of the nodes of each depth but the last.
            branching: The shape of the tree; None for a chain.
        """
        branching = branching or Branching((1,) * len(laws))
        probs = [
            law.prob_of(mx.repeat(mx.arange(law.logits.shape[0]), width), drawn)
            for law, drawn, width in zip(laws, tokens[1:], branching.widths, strict=True)
        ]
        return Draft(
            tree=branching.tree(mx.concatenate(list(tokens))),
            sources=(name,) * (len(branching.parents) - 1),
            node_probs=mx.concatenate(probs),
            sampled_from=mx.concatenate([law.probs for law in laws]) if self.is_random else None,
            branching=branching if self.is_random and not branching.is_chain else None,
        )
