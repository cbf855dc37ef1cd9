"""The draft model: a second, smaller language model drafts; it has its own cache.

At temperature 0, or where `samples` is False, the draft is a chain, the draft model's greedy text.
Otherwise its tokens are drawn from the draft model's distribution q under the target's sampling
params, and the draft states q for verification (Leviathan et al. 2023,
https://arxiv.org/abs/2211.17192). If the budget is larger than the longest chain, the rest goes
into branches at the root, drawn without replacement. Drafting needs no host synchronisation: each
drawn token is the lazy input of the next forward.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.backend import values
from mlxspec.drafters.search.drawing import DrawingDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import DEFAULT_LOOKAHEAD, SamplingParams
from mlxspec.trace.difference import common_length


class DraftModelDrafter(DrawingDrafter):
    """Drafts with a language model that has the target's tokenizer.

    Its decoder has its own cache; the history there is always a prefix of the conversation.
    """

    name = "model"

    def __init__(
        self,
        decoder: Decoder,
        target_vocab_size: int,
        lookahead: int = DEFAULT_LOOKAHEAD,
        *,
        samples: bool = True,
    ) -> None:
        super().__init__(target_vocab_size, lookahead, samples)
        self.decoder = decoder
        self._unread: list[int] = []  # emitted tokens not yet in the draft model's history
        self._fed: list[int] = []
        self._drafted: mx.array | None = None  # (n_nodes,) tokens of the last chain, root first
        self._num_staged = 0  # nodes of the last tree that are staged; its leaves are not
        self._drawn = DraftTree.chain(mx.zeros(1, mx.int32))  # that tree

    def fresh_for(self, target: Decoder) -> "DraftModelDrafter":
        decoder = Decoder(self.decoder.model, self.decoder.cache.empty_like())
        return DraftModelDrafter(decoder, self._width, self.lookahead, samples=self.samples)

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        super().start(prompt, sampling, key)
        self._drafted, self._num_staged = None, 0
        width = self.decoder.vocab_size  # the text is read up to the first token that is beyond
        lacking = (i for i, token in enumerate(prompt[:-1]) if token >= width)
        num_known = next(lacking, len(prompt) - 1)
        shared = common_length(self.decoder.history, prompt[:num_known])
        self.decoder.rollback_to(shared)
        self.decoder.observe(prompt[shared:num_known])
        self._unread = list(prompt[num_known:-1])

    def propose(self, root: int, budget: int) -> Draft:
        self._fed, self._drafted, self._num_staged = [*self._unread, root], None, 0
        length = min(budget, self.depth, self._room(budget))
        # A target padded to more tokens can emit one that the draft model cannot embed.
        if length <= 0 or max(self._fed) >= self.decoder.vocab_size:
            return Draft.empty(root)
        shape = TreeShape.for_budget(budget, length, self.limits.branching)
        if shape.is_chain or self.sampling.is_greedy:
            return self._chain(length)
        return self._tree(shape)

    def update(self, round: Round) -> None:
        """Commit the rows of accepted draft tokens to the draft model's cache; drop the others."""
        accepted, fed = round.accepted, [*self._unread, round.tokens[0]]
        super().update(round)
        if self._num_staged:
            path = [node for node in self._own_nodes(round) if node < self._num_staged]
            self.decoder.commit(path)
            self._unread, self._num_staged = accepted[len(path) - 1 :], 0
            return
        if self._drafted is None:  # it proposed nothing: the budget may have been 0
            self._unread = [*fed, *accepted]
            return
        read = values(self._drafted)[1:-1]  # evaluated with the round
        shared = common_length(read, accepted)
        self.decoder.commit_chain([*fed, *accepted[:shared]])
        self._unread, self._drafted = accepted[shared:], None

    # ---- inside ----------------------------------------------------------------------------

    def _chain(self, length: int) -> Draft:
        def next_logits(above: DraftTree, last: mx.array) -> mx.array:
            fed = mx.array(self._fed, mx.int32) if above.n_nodes == 1 else last
            return self.decoder.logits(self.decoder.extend_chain(fed)[-1:])

        shape = TreeShape((1,) * length)
        draft = self.grow(self._fed[-1], shape, next_logits)
        self._drafted = draft.tree.tokens
        return draft

    def _tree(self, shape: TreeShape) -> Draft:
        """Draw a tree. Each level computes the few nodes above it again."""
        *unread, root = self._fed
        if unread:
            self.decoder.extend_chain(mx.array(unread, mx.int32))
            self.decoder.commit_chain(unread)
        self._unread, self._fed = [], [root]

        def next_logits(above: DraftTree, last: mx.array) -> mx.array:
            hidden = self.decoder.forward_tree(above)[-last.shape[0] :]
            self._num_staged = above.n_nodes
            return self.decoder.logits(hidden)

        draft = self.grow(root, shape, next_logits)
        self._drawn = draft.tree
        return draft

    def _own_nodes(self, round: Round) -> list[int]:
        """Return the accepted nodes of the drawn tree; it is regrown around forced tokens."""
        (tokens, parents), path = self._drawn.lists(), [0]
        for token in round.accepted:
            at = (token, path[-1])
            below = [n for n, one in enumerate(zip(tokens, parents, strict=True)) if one == at]
            if not below:
                break
            path += below
        return path

    def _room(self, wanted: int) -> int:
        """Return how many more tokens fit in its context; `wanted` if its cache rotates."""
        limit = self.decoder.model.config.max_position_embeddings
        if self.decoder.cache.max_size is not None:
            return wanted
        return limit - len(self.decoder) - len(self._fed)
