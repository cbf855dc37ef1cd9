"""A round on the host: what was verified, which nodes were accepted, and its costs.

It is the only record of a round: drafters and budgets learn from it, and events are made from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxspec.trace.events import EmittedToken


@dataclass(frozen=True)
class Round:
    """The result of one target forward, or of a grammar alone.

    `tokens` and `parents` are the tree's, root first. `path` has the accepted nodes from the root
    (0) down; it and the bonus token end with the last token that was added to the reply.
    `top_tokens` are the target's most probable next tokens of each node, best first, if the drafter
    requests them with `num_top_tokens`, and `top_probs` their probabilities at temperature 1,
    before any filter. `target_probs` are the target's of each node's token after its parent
    (undefined for the root), then that of the bonus token. They may be NaN if the parent is not on
    the path: a CPU does not compute nodes that it does not reach.
    """

    tokens: Sequence[int]
    parents: Sequence[int]
    path: Sequence[int]
    bonus_token: int  # the token that the target added; the root of the next round
    top_tokens: Sequence[Sequence[int]] = ()
    top_probs: Sequence[Sequence[float]] = ()
    from_residual: bool = False  # whether the bonus token replaces rejected draft tokens
    target_probs: Sequence[float] = ()
    draft_probs: Sequence[float] | None = None  # the drafter's of each node except the root
    sources: Sequence[str] = ()  # name of the proposing drafter for each node except the root
    num_certain: int = 0  # number of first nodes that were certain; see `Draft`
    number: int = 0  # number of the target forward in its reply, from 1
    emitted: tuple[EmittedToken, ...] = ()  # tokens that were added to the reply
    emitted_nodes: tuple[int, ...] = ()  # the nodes of these tokens, without the root
    forwards: int = 1  # number of target forwards; 0 if all tokens were certain
    # A reply sets the following fields last, so a drafter must not read them.
    num_allowed: int = 0  # nodes that the drafter was allowed to propose; 0 if it was not called
    num_rows: int = 0  # rows of the forward, including the root and any padding
    draft_ms: float = 0.0  # until the draft was returned; a lazy one is not computed then
    target_ms: float = 0.0  # from then to the end of the round
    ended_s: float = 0.0  # end of the round, in seconds since the request of the reply
    context: int = 0  # tokens in the cache after it

    @property
    def accepted(self) -> list[int]:
        """Tokens of the accepted nodes, without the root."""
        return [self.tokens[index] for index in self.path[1:]]
