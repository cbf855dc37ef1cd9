"""A second, smaller language model drafts a chain; its cache is rolled back in step.

At temperature 0, and wherever it is told not to draw, the chain is the draft model's own greedy
text. Else it is drawn from the draft model's law under the target's filters, and that law goes
along with the draft, so that verification can use it (Leviathan et al. 2023,
https://arxiv.org/abs/2211.17192). Nothing is read on the host while drafting: each drawn token
feeds the next forward as a lazy array.
"""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from mlxspec.backend import values
from mlxspec.decoder import Decoder
from mlxspec.draft import Draft, RoundOutcome
from mlxspec.drafters.reduced_head import spread
from mlxspec.prefix import common_length
from mlxspec.sampling import Law, NodeLaws, TokenCounts
from mlxspec.tree import DraftTree

DEFAULT_LOOKAHEAD = 4


class DraftModelDrafter:
    """Drafts with a language model that reads the target's tokenizer.

    Attributes:
        decoder: The draft model with a cache of its own; its history is always a beginning of
            the conversation.
        lookahead: Longest chain to draft.
        samples: Whether it draws above temperature 0; see `SamplingDrafter`.
    """

    name = "model"
    num_top_tokens = 0

    def __init__(
        self,
        decoder: Decoder,
        target_vocab_size: int,
        lookahead: int = DEFAULT_LOOKAHEAD,
        *,
        samples: bool = True,
    ) -> None:
        """Make a drafter.

        Args:
            decoder: The draft model.
            target_vocab_size: Width of the target's logits; the draft model's may differ by
                padding.
            lookahead: Longest chain to draft.
            samples: Whether to draw above temperature 0.

        Raises:
            ValueError: `lookahead` is less than 1.
        """
        if lookahead < 1:
            raise ValueError(f"lookahead must be 1 or more; got {lookahead}")
        self.decoder, self.lookahead, self.samples = decoder, lookahead, samples
        self._width = target_vocab_size
        self._unread: list[int] = []  # emitted tokens that the draft model has not read
        self._fed: list[int] = []
        self._drafted: list[mx.array] = []  # (1,) tokens of the last chain

    def start(self, prompt: Sequence[int], law: Law, key: mx.array) -> None:
        self._law, self._key = law if self.samples else replace(law, temperature=0.0), key
        self._counts = TokenCounts.of(list(prompt), self._width) if law.has_penalties else None
        self._drafted = []
        num_known = self._num_known(prompt[:-1])
        shared = common_length(self.decoder.history, prompt[:num_known])
        self.decoder.rollback_to(shared)
        self.decoder.observe(prompt[shared:num_known])
        self._unread = list(prompt[num_known:-1])

    def propose(self, root: int, budget: int) -> Draft:
        self._fed, self._drafted = [*self._unread, root], []
        length = min(budget, self.lookahead, self._room())
        if length <= 0 or max(self._fed) >= self.decoder.vocab_size:
            return Draft.empty(root)
        feed = mx.array(self._fed, mx.int32)
        tokens, laws = [feed[-1:]], []
        for _ in range(length):
            hidden = self.decoder.extend_chain(feed)
            laws.append(self._law_after(hidden[-1:], tokens))
            feed = laws[-1].draw(self._next_key())
            tokens.append(feed)
        self._drafted = tokens[1:]
        return self._draft(tokens, laws)

    def update(self, outcome: RoundOutcome) -> None:
        accepted = outcome.accepted
        emitted = [*accepted, outcome.bonus_token]
        if self._counts:
            self._counts = self._counts.add(emitted)
        if not self._drafted:
            self._unread = [*self._fed, *accepted]
            return
        read = [values(token)[0] for token in self._drafted[:-1]]  # evaluated with the round
        shared = common_length(read, accepted)
        self.decoder.commit_chain([*self._fed, *accepted[:shared]])
        self._unread = accepted[shared:]
        self._drafted = []

    def _num_known(self, tokens: Sequence[int]) -> int:
        """Return how many tokens come before the first that the draft model does not have."""
        width = self.decoder.vocab_size
        return next((i for i, token in enumerate(tokens) if token >= width), len(tokens))

    def _room(self) -> int:
        limit = self.decoder.model.config.max_position_embeddings
        if self.decoder.cache.max_size is not None:
            return self.lookahead
        return limit - len(self.decoder) - len(self._fed)

    def _law_after(self, hidden: mx.array, tokens: Sequence[mx.array]) -> NodeLaws:
        logits = spread(self.decoder.logits(hidden), None, self._width)
        if self._counts is None:
            return NodeLaws(self._law, logits)
        counts = self._counts.along(DraftTree.chain(mx.concatenate(list(tokens))))
        return NodeLaws(self._law, logits, counts.last())

    def _next_key(self) -> mx.array:
        self._key, key = mx.random.split(self._key)
        return key

    def _draft(self, tokens: Sequence[mx.array], laws: Sequence[NodeLaws]) -> Draft:
        first = mx.array([0])
        probs = [law.prob_of(first, token) for law, token in zip(laws, tokens[1:], strict=True)]
        return Draft(
            tree=DraftTree.chain(mx.concatenate(list(tokens))),
            sources=(self.name,) * len(laws),
            node_probs=mx.concatenate(probs),
            sampled_from=None
            if self._law.is_greedy
            else mx.concatenate([law.probs for law in laws]),
        )
