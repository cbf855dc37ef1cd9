"""A round as the host sees it: what was verified, what stayed of it, and what it took.

It is the one record of a round: a drafter is told it, a budget learns from it, and events are made
of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxspec.trace.events import EmittedToken


@dataclass(frozen=True)
class Round:
    """What one target forward decided, or a grammar alone.

    A reply sets `num_allowed` and the fields after it last, so a drafter must not read these.

    Attributes:
        tokens: Token of each node of the tree, root first.
        parents: Parent of each node, -1 at the root.
        path: Accepted nodes from the root down, the root (0) first.
        bonus_token: The token the target added; the root of the next round.
        top_tokens: Per node, the target's most probable next tokens, best first; empty unless
            the drafter asks for them with `num_top_tokens`.
        top_probs: Their probabilities under the target at temperature 1, before any filter.
        from_residual: Whether the bonus token stands where drafts were rejected.
        target_probs: The target's probability of each node's token after its parent, the root's
            without meaning, and last that of the bonus token. It may be NaN where the parent is not
            on the path: a CPU does not compute what is not reached.
        draft_probs: The drafter's probability of each node but the root, if it gave any.
        sources: Name of the proposing drafter for each node but the root.
        num_certain: Number of first nodes that were certain; see `Draft`.
        number: Of the target forward in its reply, from 1.
        emitted: Tokens that the reply was given. Path and bonus token end with the last of them.
        emitted_nodes: The nodes that these are of, the root left out.
        forwards: Target forwards that it took: 1, or 0 where all of it was certain.
        num_allowed: Nodes that the drafter was allowed to propose; 0 where it was not called.
        num_rows: Rows of the forward, the root and any padding included.
        draft_ms: Milliseconds until the draft was handed over; a lazy one is not computed then.
        target_ms: Milliseconds from there to the end of the round.
        ended_s: When it was over, in seconds since the reply was asked for.
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
        """Tokens of the accepted nodes, root left out."""
        return [self.tokens[index] for index in self.path[1:]]
