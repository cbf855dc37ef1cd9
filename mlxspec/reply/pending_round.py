"""A round on the device: launch it, then wait for it.

Until then the round is lazy: its verification always, its draft often. The host needs a few small
arrays of it. They are evaluated together, only here, so a round waits once; the device can start on
them earlier.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlxspec.device.backend import values
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.reply.waited_round import WaitedRound
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.rules import Verdict


@dataclass(frozen=True)
class PendingRound(WaitedRound):
    """A round that the device verifies.

    Attributes:
        tokens: (n_nodes + 1,) int32 tokens of the nodes, and the bonus token.
        parents: (n_nodes + 1,) int32 parents of the nodes, and the parent of the bonus token.
        target_probs: (n_nodes + 1,) float32; as in `Round`.
        top: The most probable tokens after each node and their probabilities, or nothing.
        distributions: The target's distributions after each node if `on_logits` is set; else None,
            so that MLX can reuse their memory.
    """

    draft: Draft
    verdict: Verdict
    tokens: mx.array
    parents: mx.array
    target_probs: mx.array
    top: tuple[mx.array, ...]
    distributions: NodeDistributions | None

    @staticmethod
    def of(
        draft: Draft,
        tree: DraftTree,
        verdict: Verdict,
        distributions: NodeDistributions,
        num_top_tokens: int,
        *,
        keeps_distributions: bool = False,
    ) -> "PendingRound":
        """Gather what the host needs from a round.

        `tree` is the one that was verified. The host gets the `num_top_tokens` most probable tokens
        after each node; 0 for none. With `keeps_distributions`, the distributions stay after the
        round.
        """
        proposed = draft.tree
        # The deepest accepted node ends the path; the bonus token follows it.
        last = mx.argmax(mx.where(verdict.accepted, tree.depths, -1))[None]
        bonus = verdict.bonus_token[None]
        # A caller's sampler may choose any number, and MLX does not check indices.
        inside = mx.clip(bonus, 0, distributions.logits.shape[-1] - 1)
        target_probs = distributions.prob_of(
            mx.concatenate([mx.maximum(tree.parents, 0), last]),
            mx.concatenate([tree.tokens, inside]),
        )
        return PendingRound(
            draft=draft,
            verdict=verdict,
            tokens=mx.concatenate([proposed.tokens, bonus]),
            parents=mx.concatenate([proposed.parents, last]),
            target_probs=target_probs,
            top=distributions.top_tokens(num_top_tokens) if num_top_tokens else (),
            distributions=distributions if keeps_distributions else None,
        )

    def read(self) -> Round:
        *node_tokens, bonus_token = values(self.tokens)
        top_ids, top_probs = map(values, self.top) if self.top else ((), ())
        return self._of_draft(
            Round(
                tokens=node_tokens,
                parents=values(self.parents)[:-1],
                path=[node for node, is_on in enumerate(values(self.verdict.accepted)) if is_on],
                bonus_token=bonus_token,
                top_tokens=top_ids,
                top_probs=top_probs,
                from_residual=values(self.verdict.from_residual),
                target_probs=values(self.target_probs),
            )
        )

    @property
    def arrays(self) -> list[mx.array]:
        verdict, probs = self.verdict, self.draft.node_probs
        drafted = [] if probs is None else [probs]
        arrays = [verdict.accepted, verdict.from_residual, self.tokens, self.parents]
        return [*arrays, self.target_probs, *drafted, *self.top]
