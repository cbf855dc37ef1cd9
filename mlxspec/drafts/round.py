"""A round on the host: what was verified, which nodes were accepted, and its costs.

It is the only record of a round: drafters and budgets learn from it, and events are made from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxspec.trace.events import EmittedToken


@dataclass(frozen=True)
class Round:
    """The result of one target forward, or of a grammar alone.

    A reply sets `num_allowed` and the fields after it last, so a drafter must not read these.

    Attributes:
        tokens: Token of each node of the tree, root first.
        parents: Parent of each node, -1 at the root.
        path: Accepted nodes from the root down, the root (0) first.
        bonus_token: The token that the target added; the root of the next round.
        top_tokens: Per node, the target's most probable next tokens, best first; empty unless the
            drafter requests them with `num_top_tokens`.
        top_probs: Their probabilities under the target at temperature 1, before any filter.
        from_residual: Whether the bonus token replaces rejected draft tokens.
        target_probs: The target's probability of each node's token after its parent (undefined for
            the root), then that of the bonus token. It may be NaN if the parent is not on the path:
            a CPU does not compute nodes that it does not reach.
        draft_probs: The drafter's probability of each node except the root, if it stated any.
        sources: Name of the proposing drafter for each node except the root.
        num_certain: Number of first nodes that were certain; see `Draft`.
        number: Number of the target forward in its reply, from 1.
        emitted: Tokens that were added to the reply. Path and bonus token end with the last of
            them.
        emitted_nodes: The nodes of these tokens, without the root.
        forwards: Number of target forwards: 1, or 0 if all tokens were certain.
        num_allowed: Number of nodes that the drafter was allowed to propose; 0 if it was not
            called.
        num_rows: Rows of the forward, including the root and any padding.
        draft_ms: Milliseconds until the draft was returned; a lazy one is not computed then.
        target_ms: Milliseconds from then to the end of the round.
        ended_s: End of the round, in seconds since the request of the reply.
        context: Tokens in the cache after it.
    """

    tokens: Sequence[int]
    parents: Sequence[int]
    path: Sequence[int]
    bonus_token: int
    top_tokens: Sequence[Sequence[int]] = ()
    top_probs: Sequence[Sequence[float]] = ()
    from_residual: bool = False
    target_probs: Sequence[float] = ()
    draft_probs: Sequence[float] | None = None
    sources: Sequence[str] = ()
    num_certain: int = 0
    number: int = 0
    emitted: tuple[EmittedToken, ...] = ()
    emitted_nodes: tuple[int, ...] = ()
    forwards: int = 1
    num_allowed: int = 0
    num_rows: int = 0
    draft_ms: float = 0.0
    target_ms: float = 0.0
    ended_s: float = 0.0
    context: int = 0

    @property
    def accepted(self) -> list[int]:
        """Tokens of the accepted nodes, without the root."""
        return [self.tokens[index] for index in self.path[1:]]
