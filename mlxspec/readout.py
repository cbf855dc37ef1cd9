"""The one place of a round that waits for the device.

Everything before is lazy: the draft may be, its verification is. What the host needs of a round
is a few small arrays, and they are evaluated together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.backend import sync, values
from mlxspec.draft import Draft, RoundOutcome
from mlxspec.sampling import NodeLaws
from mlxspec.verify import VerifyResult


@dataclass(frozen=True)
class Readout:
    """A round as the host sees it.

    Attributes:
        outcome: The tree, its accepted path and the bonus token.
        from_residual: Whether the bonus token stands where drafts were rejected.
        target_probs: The target's probability of each node's token after its parent, the root's
            without meaning, and last that of the bonus token.
        draft_probs: The drafter's probability of each node but the root, if it gave any.
    """

    outcome: RoundOutcome
    from_residual: bool
    target_probs: Sequence[float]
    draft_probs: Sequence[float] | None


def read_round(draft: Draft, verdict: VerifyResult, laws: NodeLaws, num_top_tokens: int) -> Readout:
    """Evaluate a round and return what the host needs of it.

    Args:
        draft: What was proposed.
        verdict: What became of it.
        laws: The target's law after each node.
        num_top_tokens: How many of the most probable tokens after each node to read; 0 for none.
    """
    tree = draft.tree
    last = mx.argmax(mx.where(verdict.accepted, tree.depths, -1))
    parents = mx.concatenate([tree.parents, last[None]])
    tokens = mx.concatenate([tree.tokens, verdict.bonus_token[None]])
    target_probs = laws.prob_of(mx.maximum(parents, 0), tokens)
    draft_probs = [] if draft.node_probs is None else [draft.node_probs]
    top = laws.top_tokens(num_top_tokens) if num_top_tokens else ()
    sync(verdict.accepted, verdict.from_residual, tokens, parents, target_probs, *draft_probs, *top)
    *node_tokens, bonus_token = values(tokens)
    top_ids, top_probs = map(values, top) if num_top_tokens else ((), ())
    outcome = RoundOutcome(
        tokens=node_tokens,
        parents=values(parents)[:-1],
        path=[node for node, is_on in enumerate(values(verdict.accepted)) if is_on],
        bonus_token=bonus_token,
        top_tokens=top_ids,
        top_probs=top_probs,
    )
    return Readout(
        outcome=outcome,
        from_residual=values(verdict.from_residual),
        target_probs=values(target_probs),
        draft_probs=values(draft_probs[0]) if draft_probs else None,
    )
