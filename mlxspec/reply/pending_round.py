"""A round on the device: launch it, then wait for it.

All of a round is lazy until then: often the draft, always its verification. The host needs a few
small arrays of it. They are evaluated together, here and nowhere else, so a round waits once; the
device can start on them earlier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Protocol

import mlx.core as mx

from mlxspec.device.backend import sync, values
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import NumericsError
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.rules import Verdict


@dataclass(frozen=True)
class PendingRound:
    """A round that is not computed yet; every array is lazy.

    Attributes:
        draft: The draft as it was proposed.
        verdict: What verification decides.
        tokens: (n_nodes + 1,) int32 tokens of the nodes, and the bonus token.
        parents: (n_nodes + 1,) int32 parents of the nodes, and the node before the bonus token.
        target_probs: (n_nodes + 1,) float32; as in `Round`.
        top: The most probable tokens after each node and their probabilities, or nothing.
        distributions: The target's distributions after each node where `on_logits` is set; else
            None, so that MLX can reuse their memory.
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
        """Gather what the host needs of a round.

        Args:
            draft: The draft as it was proposed.
            tree: Its tree as it was verified.
            verdict: What verification decides.
            distributions: The target's distributions after each node.
            num_top_tokens: How many of the most probable tokens after each node the host gets;
                0 for none.
            keeps_distributions: Whether the distributions are needed after the round.
        """
        proposed = draft.tree
        # The deepest accepted node ends the path; the bonus token stands after it.
        last = mx.argmax(mx.where(verdict.accepted, tree.depths, -1))[None]
        bonus = verdict.bonus_token[None]
        target_probs = distributions.prob_of(
            mx.concatenate([mx.maximum(tree.parents, 0), last]),
            mx.concatenate([tree.tokens, bonus]),
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

    def launch(self) -> None:
        """Start the computation on the device without waiting for it."""
        mx.async_eval(*self.arrays)

    def wait(self) -> Round:
        """Wait for the device and return the round as Python values.

        Raises:
            NumericsError: The target computed NaN on the accepted path.
        """
        return wait_all([self])[0]

    def read(self) -> Round:
        """Return the round as Python values; its arrays must be evaluated already.

        Raises:
            NumericsError: As in `wait`.
        """
        *node_tokens, bonus_token = values(self.tokens)
        top_ids, top_probs = map(values, self.top) if self.top else ((), ())
        draft_probs = self.draft.node_probs
        return checked(
            Round(
                tokens=node_tokens,
                parents=values(self.parents)[:-1],
                path=[node for node, is_on in enumerate(values(self.verdict.accepted)) if is_on],
                bonus_token=bonus_token,
                top_tokens=top_ids,
                top_probs=top_probs,
                from_residual=values(self.verdict.from_residual),
                target_probs=values(self.target_probs),
                draft_probs=None if draft_probs is None else values(draft_probs),
                sources=self.draft.sources,
                num_certain=self.draft.num_certain,
            )
        )

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays that the host needs."""
        verdict, probs = self.verdict, self.draft.node_probs
        drafted = [] if probs is None else [probs]
        arrays = [verdict.accepted, verdict.from_residual, self.tokens, self.parents]
        return [*arrays, self.target_probs, *drafted, *self.top]


class Waited(Protocol):
    """A round of which the host waits for some arrays."""

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays that the host needs."""

    def read(self) -> Round:
        """Return the round; its arrays must be evaluated already."""


def wait_all(rounds: Sequence[Waited]) -> list[Round]:
    """Wait for the device once and return the rounds of several sequences, in their order."""
    sync(*(array for pending in rounds for array in pending.arrays))
    return [pending.read() for pending in rounds]


def checked(round: Round) -> Round:
    """Return the round.

    Raises:
        NumericsError: The target computed NaN on the accepted path.
    """
    if any(isnan(round.target_probs[node]) for node in (*round.path[1:], -1)):
        raise NumericsError(
            "the target computed no numbers (NaN): its weights are damaged, or too large for "
            "their type; load the model again, from another source or in a wider type: "
            "--dtype float32, in Python load(dtype='float32')"
        )
    return round
