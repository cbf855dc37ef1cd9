"""A round before the host has waited for it: its verification is lazy, often its draft too.

The few small arrays that the host needs are evaluated together, only here, so a round waits once.
The device verifies; or the host, on a CPU, once it has the logits; or nobody, if a grammar decides
all that is left.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isnan

import mlx.core as mx

from mlxspec.device.backend import on_host, sync, values
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import NumericsError
from mlxspec.trace.stats import FORCED
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.on_host import top_tokens, walk
from mlxspec.verify.rules import Verdict


@dataclass(frozen=True)
class PendingRound(ABC):
    """A round that is not computed yet; every array is lazy."""

    draft: Draft  # as it was proposed
    # After each node, if they are needed later; else None, so that MLX can reuse their memory.
    distributions: NodeDistributions | None

    @property
    @abstractmethod
    def arrays(self) -> list[mx.array]:
        """The arrays that the host needs."""

    @abstractmethod
    def _verified(self) -> Round:
        """Return what was accepted; the arrays are evaluated."""

    def launch(self) -> None:
        """Start the computation on the device without waiting for it."""
        mx.async_eval(*self.arrays)

    def wait(self) -> Round:
        """Wait for the device and return the round as Python values."""
        wait_all([self])
        return self.read()

    def read(self) -> Round:
        """Return the round as Python values; its arrays must be evaluated already."""
        round, probs = self._verified(), self.draft.node_probs
        if any(isnan(round.target_probs[node]) for node in (*round.path[1:], -1)):
            raise NumericsError(
                "the target computed no numbers (NaN): its weights are damaged, or too large for "
                "their type; load the model again, from another source or in a wider type: "
                "--dtype float32, in Python load(dtype='float32')"
            )
        return replace(
            round,
            draft_probs=None if probs is None else values(probs),
            sources=self.draft.sources,
            num_certain=self.draft.num_certain,
        )


def wait_all(rounds: Sequence[PendingRound]) -> None:
    """Wait for the device once for the rounds of several sequences; then they can be read."""
    sync(*(array for pending in rounds for array in pending.arrays))


@dataclass(frozen=True)
class DeviceRound(PendingRound):
    """A round that the device verifies."""

    verdict: Verdict
    tokens: mx.array  # (n_nodes + 1,) int32: of the nodes, and the bonus token
    parents: mx.array  # (n_nodes + 1,) int32: of the nodes, and of the bonus token
    target_probs: mx.array  # (n_nodes + 1,) float32, as in `Round`
    top: tuple[mx.array, ...]  # most probable tokens after each node and their probabilities

    @staticmethod
    def of(
        draft: Draft,
        tree: DraftTree,
        verdict: Verdict,
        distributions: NodeDistributions,
        num_top_tokens: int,
        *,
        keeps_distributions: bool = False,
    ) -> "DeviceRound":
        """Gather what the host needs from a round.

        `tree` is the one that was verified. The host gets the `num_top_tokens` most probable tokens
        after each node; 0 for none.
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
        return DeviceRound(
            draft=draft,
            distributions=distributions if keeps_distributions else None,
            verdict=verdict,
            tokens=mx.concatenate([proposed.tokens, bonus]),
            parents=mx.concatenate([proposed.parents, last]),
            target_probs=target_probs,
            top=distributions.top_tokens(num_top_tokens) if num_top_tokens else (),
        )

    @property
    def arrays(self) -> list[mx.array]:
        verdict, probs = self.verdict, self.draft.node_probs
        drafted = [] if probs is None else [probs]
        arrays = [verdict.accepted, verdict.from_residual, self.tokens, self.parents]
        return [*arrays, self.target_probs, *drafted, *self.top]

    def _verified(self) -> Round:
        *node_tokens, bonus_token = values(self.tokens)
        top_ids, top_probs = map(values, self.top) if self.top else ((), ())
        return Round(
            tokens=node_tokens,
            parents=values(self.parents)[:-1],
            path=[node for node, is_on in enumerate(values(self.verdict.accepted)) if is_on],
            bonus_token=bonus_token,
            top_tokens=top_ids,
            top_probs=top_probs,
            from_residual=values(self.verdict.from_residual),
            target_probs=values(self.target_probs),
        )


@dataclass(frozen=True)
class HostRound(PendingRound):
    """A round that the host verifies, going down the tree once it has the logits.

    The device computes the logits of all nodes, the host the distributions of the nodes that it
    reaches (`verify/on_host.py`).
    """

    distributions: NodeDistributions
    tree: DraftTree  # as the target computed it
    noise: mx.array | None  # (levels, num_noises(V)) float32, by depth; None at temperature 0
    num_top_tokens: int

    @property
    def arrays(self) -> list[mx.array]:
        nodes = [(tree.tokens, tree.parents) for tree in (self.draft.tree, self.tree)]
        logits = self.distributions.logits, self.distributions.adjusted
        given = [array for array in (self.draft.node_probs, self.noise) if array is not None]
        return [*chain(*nodes), *logits, *given]

    def _verified(self) -> Round:
        distributions = self.distributions
        walked = walk(
            *self.tree.lists(),
            on_host(distributions.adjusted),
            distributions.sampling,
            None if self.noise is None else on_host(self.noise),
        )
        k = self.num_top_tokens
        top_ids, top_probs = top_tokens(on_host(distributions.logits), k) if k else ((), ())
        tokens, parents = self.draft.tree.lists()
        return replace(
            walked, tokens=tokens, parents=parents, top_tokens=top_ids, top_probs=top_probs
        )


@dataclass(frozen=True)
class CertainRound(PendingRound):
    """The last round of a reply that a grammar forces to its end: nothing is computed.

    If no other token may follow, the target's logits decide nothing. Other rounds read their last
    token together with the next root. Here there is no next root, so no forward reads it; the next
    turn reads it with its prompt.
    """

    distributions: None = None

    @property
    def arrays(self) -> list[mx.array]:
        return []

    def wait(self) -> Round:
        """Return the round; there is nothing to wait for."""
        return self.read()

    def _verified(self) -> Round:
        tokens, parents = self.draft.tree.lists()
        return Round(
            tokens=tokens,
            parents=parents,
            path=list(range(len(tokens))),
            bonus_token=tokens[-1],
            target_probs=[1.0] * (len(tokens) + 1),
            forwards=0,
        )


def ending_draft(root: int, run: Sequence[int]) -> Draft:
    """Return the draft of a forced run of at least one token that ends a reply."""
    sure = [1.0] * len(run)
    tokens, parents = [root, *run], list(range(-1, len(run)))
    draft = Draft.from_lists(tokens, parents, [FORCED] * len(run), sure, sure)
    return replace(draft, num_certain=len(run), ends_reply=True)
