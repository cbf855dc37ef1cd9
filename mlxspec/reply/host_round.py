"""A round whose draft the host verifies, on a CPU: wait for the logits, then go down the tree.

The device computes the logits of all nodes, the host the distributions of the nodes that it reaches
(`verify/on_host.py`). So a round waits only once here too.
"""

from dataclasses import dataclass
from itertools import chain

import mlx.core as mx

from mlxspec.device.backend import on_host, values
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.reply.waited_round import WaitedRound
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.on_host import top_tokens, walk


@dataclass(frozen=True)
class HostRound(WaitedRound):
    """A round that the host verifies.

    Attributes:
        tree: Its tree as the target computed it.
        distributions: The target's distributions after each node; the device computes only their
            logits.
        noise: (levels, num_noises(V)) float32 Gumbel noise by depth; None at temperature 0.
        num_top_tokens: Number of most probable tokens after each node in the round; 0 for none.
    """

    draft: Draft
    tree: DraftTree
    distributions: NodeDistributions
    noise: mx.array | None
    num_top_tokens: int

    def read(self) -> Round:
        distributions, proposed = self.distributions, self.draft.tree
        walked = walk(
            values(self.tree.tokens),
            values(self.tree.parents),
            on_host(distributions.adjusted),
            distributions.sampling,
            None if self.noise is None else on_host(self.noise),
        )
        k = self.num_top_tokens
        top = top_tokens(on_host(distributions.logits), k) if k else ((), ())
        return self._of_draft(
            Round(
                tokens=values(proposed.tokens),
                parents=values(proposed.parents),
                path=walked.path,
                bonus_token=walked.bonus_token,
                top_tokens=top[0],
                top_probs=top[1],
                from_residual=walked.from_residual,
                target_probs=walked.target_probs,
            )
        )

    @property
    def arrays(self) -> list[mx.array]:
        nodes = [(tree.tokens, tree.parents) for tree in (self.draft.tree, self.tree)]
        logits = self.distributions.logits, self.distributions.adjusted
        given = [array for array in (self.draft.node_probs, self.noise) if array is not None]
        return [*chain(*nodes), *logits, *given]
