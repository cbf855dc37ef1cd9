"""The one place of a round that waits for the device.

Everything before is lazy: the draft may be, its verification is. What the host needs of a round
is a few small arrays, and they are evaluated together; the device can be given them beforehand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import mlx.core as mx

from mlxspec.device.backend import sync, values
from mlxspec.drafts.draft import Draft, RoundOutcome
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import NumericsError
from mlxspec.verify.distribution import NodeLaws
from mlxspec.verify.rules import VerifyResult


@dataclass(frozen=True)
class Readout:
    """A round as the host sees it.

    Attributes:
        outcome: The tree, its accepted path and the bonus token.
        from_residual: Whether the bonus token stands where drafts were rejected.
        target_probs: The target's probability of each node's token after its parent, the root's
            without meaning, and last that of the bonus token.
        draft_probs: The drafter's probability of each node but the root, if it gave any.
        laws: The target's law after each node, on the device, where logits are asked for.
    """

    outcome: RoundOutcome
    from_residual: bool
    target_probs: Sequence[float]
    draft_probs: Sequence[float] | None
    laws: NodeLaws | None


@dataclass(frozen=True)
class LazyRound:
    """A round that is still to be computed; every array is lazy.

    Attributes:
        verdict: What becomes of the draft.
        tokens: (n_nodes + 1,) int32 tokens of the nodes, and the bonus token.
        parents: (n_nodes + 1,) int32 parents of the nodes, and the node before the bonus token.
        target_probs: As in `Readout`.
        draft_probs: As in `Readout`.
        top: The most probable tokens after each node and their probabilities, or nothing.
        laws: As in `Readout`.
    """

    verdict: VerifyResult
    tokens: mx.array
    parents: mx.array
    target_probs: mx.array
    draft_probs: mx.array | None
    top: tuple[mx.array, ...]
    laws: NodeLaws | None

    @staticmethod
    def of(
        draft: Draft,
        verdict: VerifyResult,
        laws: NodeLaws,
        num_top_tokens: int,
        proposed: DraftTree | None = None,
        *,
        keeps_laws: bool = False,
    ) -> "LazyRound":
        """Gather what the host needs of a round.

        Args:
            draft: What was verified.
            verdict: What becomes of it.
            laws: The target's law after each node.
            num_top_tokens: How many of the most probable tokens after each node to read; 0 for
                none.
            proposed: The tree to read, where that is not the one that was verified.
            keeps_laws: Whether the laws are read afterwards; else their memory is used again.
        """
        tree, read = draft.tree, proposed or draft.tree
        last = mx.argmax(mx.where(verdict.accepted, tree.depths, -1))[None]
        bonus = verdict.bonus_token[None]
        target_probs = laws.prob_of(
            mx.concatenate([mx.maximum(tree.parents, 0), last]),
            mx.concatenate([tree.tokens, bonus]),
        )
        parents, tokens = mx.concatenate([read.parents, last]), mx.concatenate([read.tokens, bonus])
        top = laws.top_tokens(num_top_tokens) if num_top_tokens else ()
        kept = laws if keeps_laws else None
        return LazyRound(verdict, tokens, parents, target_probs, draft.node_probs, top, kept)

    def start(self) -> None:
        """Let the device begin, and wait for nothing."""
        mx.async_eval(*self.arrays)

    def read(self) -> Readout:
        """Wait for the device and return the round as the host sees it.

        Raises:
            NumericsError: The target computed no numbers on the accepted path.
        """
        return read_all([self])[0]

    def readout(self) -> Readout:
        """Return the round as the host sees it; its arrays have been waited for.

        Raises:
            NumericsError: As in `read`.
        """
        *node_tokens, bonus_token = values(self.tokens)
        top_ids, top_probs = map(values, self.top) if self.top else ((), ())
        outcome = RoundOutcome(
            tokens=node_tokens,
            parents=values(self.parents)[:-1],
            path=[node for node, is_on in enumerate(values(self.verdict.accepted)) if is_on],
            bonus_token=bonus_token,
            top_tokens=top_ids,
            top_probs=top_probs,
        )
        target_probs = values(self.target_probs)
        if any(isnan(target_probs[node]) for node in (*outcome.path[1:], -1)):
            raise NumericsError(
                "the target computed no numbers (NaN): its weights are damaged, or too large for "
                "their type; load the model again, from another source or in a wider type: "
                "--dtype float32, in Python load(dtype='float32')"
            )
        return Readout(
            outcome=outcome,
            from_residual=values(self.verdict.from_residual),
            target_probs=target_probs,
            draft_probs=None if self.draft_probs is None else values(self.draft_probs),
            laws=self.laws,
        )

    @property
    def arrays(self) -> list[mx.array]:
        """What the host reads."""
        verdict, probs = self.verdict, self.draft_probs
        drafted = [] if probs is None else [probs]
        arrays = [verdict.accepted, verdict.from_residual, self.tokens, self.parents]
        return [*arrays, self.target_probs, *drafted, *self.top]


def read_all(rounds: Sequence[LazyRound]) -> list[Readout]:
    """Wait for the device once and return the rounds of several sequences, in their order."""
    sync(*(array for lazy in rounds for array in lazy.arrays))
    return [lazy.readout() for lazy in rounds]
