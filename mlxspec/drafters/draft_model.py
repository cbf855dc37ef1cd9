"""The draft model: a second, smaller language model drafts; it has its own cache.

At temperature 0, or where `samples` is False, the draft is a chain, the draft model's greedy text.
Otherwise its tokens are drawn from the draft model's distribution q under the target's sampling
params, and the draft states q for verification (Leviathan et al. 2023,
https://arxiv.org/abs/2211.17192). If the budget is larger than the longest chain, the rest goes
into branches at the root, drawn without replacement. Drafting needs no host synchronisation: each
drawn token is the lazy input of the next forward.
"""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.backend import values
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.search.draft_distribution import DraftDistribution
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import DEFAULT_LOOKAHEAD, SamplingParams
from mlxspec.trace.difference import common_length
from mlxspec.verify.noise import Noise


class DraftModelDrafter(Drafter):
    """Drafts with a language model that has the target's tokenizer.

    Attributes:
        decoder: The draft model with its own cache; its history is always a prefix of the
            conversation.
        lookahead: Length of the longest path.
        limits: A depth replaces `lookahead`.
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
        """Make a drafter; raise ValueError if `lookahead` is less than 1.

        `target_vocab_size` is the width of the target's logits; the draft model's may differ by
        padding.
        """
        if lookahead < 1:
            raise ValueError(f"lookahead must be 1 or more; got {lookahead}")
        self.decoder, self.lookahead, self.samples = decoder, lookahead, samples
        self._width = target_vocab_size
        self._shared: Noise | None = None
        self._unread: list[int] = []  # emitted tokens not yet in the draft model's history
        self._fed: list[int] = []
        self._drafted: list[mx.array] = []  # (1,) tokens of the last chain
        self._num_staged = 0  # nodes of the last tree that are staged; its leaves are not
        self._drawn_shape = TreeShape(())  # of that tree

    def fresh_for(self, target: Decoder) -> "DraftModelDrafter":
        decoder = Decoder(self.decoder.model, self.decoder.cache.empty_like())
        return DraftModelDrafter(decoder, self._width, self.lookahead, samples=self.samples)

    def couple(self, noise: Noise | None) -> None:
        self._shared = noise

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        sampling = sampling if self.samples else replace(sampling, temperature=0.0)
        self._distribution = DraftDistribution(sampling, key, prompt, self._width, self._shared)
        self._drafted, self._num_staged = [], 0
        num_known = self._num_known(prompt[:-1])
        shared = common_length(self.decoder.history, prompt[:num_known])
        self.decoder.rollback_to(shared)
        self.decoder.observe(prompt[shared:num_known])
        self._unread = list(prompt[num_known:-1])

    def propose(self, root: int, budget: int) -> Draft:
        self._fed, self._drafted, self._num_staged = [*self._unread, root], [], 0
        length = min(budget, self.limits.depth or self.lookahead, self._room(budget))
        # A target padded to more tokens can emit one that the draft model cannot embed.
        if length <= 0 or max(self._fed) >= self.decoder.vocab_size:
            return Draft.empty(root)
        shape = TreeShape.for_budget(budget, length, self.limits.branching)
        if shape.is_chain or self._distribution.sampling.is_greedy:
            return self._chain(length)
        return self._tree(shape)

    def update(self, round: Round) -> None:
        """Commit the rows of accepted draft tokens to the draft model's cache; drop the others."""
        accepted, fed = round.accepted, [*self._unread, round.tokens[0]]
        self._distribution.count([*accepted, round.bonus_token])
        if self._num_staged:
            path = [node for node in self._own_nodes(round) if node < self._num_staged]
            self.decoder.commit(path)
            self._unread, self._num_staged = accepted[len(path) - 1 :], 0
            return
        if not self._drafted:  # it proposed nothing: the budget may have been 0
            self._unread = [*fed, *accepted]
            return
        read = [values(token)[0] for token in self._drafted[:-1]]  # evaluated with the round
        shared = common_length(read, accepted)
        self.decoder.commit_chain([*fed, *accepted[:shared]])
        self._unread = accepted[shared:]
        self._drafted = []

    # ---- inside ----------------------------------------------------------------------------

    def _chain(self, length: int) -> Draft:
        feed = mx.array(self._fed, mx.int32)
        tokens, distributions = [feed[-1:]], []
        for depth in range(1, length + 1):
            hidden = self.decoder.extend_chain(feed)
            logits = self.decoder.logits(hidden[-1:])
            distributions.append(
                self._distribution.after(logits, DraftTree.chain(mx.concatenate(tokens)))
            )
            feed = self._distribution.draw(distributions[-1], depth)
            tokens.append(feed)
        self._drafted = tokens[1:]
        return self._distribution.draft(self.name, tokens, distributions)

    def _tree(self, shape: TreeShape) -> Draft:
        """Draw a tree. Each level computes the few nodes above it again."""
        *unread, root = self._fed
        if unread:
            self.decoder.extend_chain(mx.array(unread, mx.int32))
            self.decoder.commit_chain(unread)
        self._unread, self._fed = [], [root]
        tokens, distributions = [mx.array([root], mx.int32)], []
        for depth, width in enumerate(shape.widths, 1):
            above = shape.tree(mx.concatenate(tokens))
            hidden = self.decoder.forward_tree(above)[shape.levels[depth - 1].start :]
            distributions.append(self._distribution.after(self.decoder.logits(hidden), above))
            tokens.append(self._distribution.draw(distributions[-1], depth, width))
            self._num_staged, self._drawn_shape = above.n_nodes, shape
        return self._distribution.draft(self.name, tokens, distributions, shape)

    def _own_nodes(self, round: Round) -> Sequence[int]:
        """Return the accepted nodes, numbered as in the drawn tree.

        A target that verifies chains only got the first node of each level.
        """
        shape = self._drawn_shape
        if len(round.tokens) == len(shape.parents):
            return round.path
        return [shape.levels[depth].start for depth in round.path]

    def _num_known(self, tokens: Sequence[int]) -> int:
        """Return the number of tokens before the first one that the draft model lacks."""
        width = self.decoder.vocab_size
        return next((i for i, token in enumerate(tokens) if token >= width), len(tokens))

    def _room(self, wanted: int) -> int:
        """Return how many more tokens fit in its context; `wanted` if its cache rotates."""
        limit = self.decoder.model.config.max_position_embeddings
        if self.decoder.cache.max_size is not None:
            return wanted
        return limit - len(self.decoder) - len(self._fed)
