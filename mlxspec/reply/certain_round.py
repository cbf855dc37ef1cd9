"""The last round of a reply that a grammar forces to its end: nothing is computed.

If no other token may follow, the target's logits decide nothing. Other rounds read their last token
together with the next root. Here there is no next root, so no forward reads it; the next turn reads
it with its prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import mlx.core as mx

from mlxspec.device.backend import values
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.reply.waited_round import WaitedRound
from mlxspec.trace.stats import FORCED


@dataclass(frozen=True)
class CertainRound(WaitedRound):
    """A round of certain tokens that end a reply."""

    draft: Draft
    distributions: None = None

    def wait(self) -> Round:
        """Return the round; there is nothing to wait for."""
        return self.read()

    def read(self) -> Round:
        tree = self.draft.tree
        tokens, parents = values(tree.tokens), values(tree.parents)
        return self._of_draft(
            Round(
                tokens=tokens,
                parents=parents,
                path=list(range(len(tokens))),
                bonus_token=tokens[-1],
                target_probs=[1.0] * (len(tokens) + 1),
                forwards=0,
            )
        )

    @property
    def arrays(self) -> list[mx.array]:
        return []


def ending_draft(root: int, run: Sequence[int]) -> Draft:
    """Return the draft of a forced run of at least one token that ends a reply."""
    sure = [1.0] * len(run)
    tokens, parents = [root, *run], list(range(-1, len(run)))
    draft = Draft.from_lists(tokens, parents, [FORCED] * len(run), sure, sure)
    return replace(draft, num_certain=len(run), ends_reply=True)
