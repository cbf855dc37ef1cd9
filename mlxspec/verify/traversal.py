r"""Verify a tree whose siblings were drawn from q without replacement, from leaves to root.

Node v with token x and parent u has the acceptance probability a(v) = min(1, a(u) p_u(x) / q_u(x));
that of the root is 1. The leftmost leaf is accepted with its whole path with probability a. If it
is rejected, it is removed and its parent changes: with r = max(a(u) p_u - q_u, 0) and S = sum(r),
p_u becomes r / S, a(u) becomes S / (S + 1 - a(u)), and q_u loses the token and is normalised. A
node whose children are all removed is a leaf; the root as a leaf is always accepted. The bonus
token is drawn from the p of the accepted node (Weng et al. 2025, https://arxiv.org/abs/2505.12398).

        root           The order of the tests is 2, 3, 1, 5, 4, root. A rejection changes only
       /    \          nodes that are tested later, so all tests are computed lazily and the
      1      4         first success is selected at the end, without the host.
     / \     |
    2   3    5

On a tree without branches this is block verification (`rules.block_rule`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx


@dataclass(frozen=True)
class Traversal:
    """The nodes in the order of their tests; each test assumes that all earlier ones failed."""

    nodes: list[int] = field(default_factory=list)  # the root is the last
    chances: list[mx.array] = field(default_factory=list)  # () float32, of acceptance
    bonus_probs: list[mx.array] = field(default_factory=list)  # (V,) float32, after each node


def traverse(
    tokens: mx.array,
    children: Sequence[Sequence[int]],
    target_probs: mx.array,
    draft_probs: mx.array,
) -> Traversal:
    """Return the acceptance probability of each node of a tree; lazy.

    Args:
        tokens: (n_nodes,) int32, the root first.
        children: Children of every node, in the order in which they were drawn.
        target_probs: (n_nodes, V) float32 distribution p after each node.
        draft_probs: (m, V) float32 distribution q after each of the first m nodes, which are the
            nodes with children; the children were drawn from it without replacement.
    """
    order = Traversal()

    def judge(node: int, chance: mx.array) -> None:
        """List the tests below a node, then its own, from its () float32 probability so far."""
        p = target_probs[node]
        q = draft_probs[node] if children[node] else p
        for child in children[node]:
            token = tokens[child]
            judge(child, mx.minimum(1.0, chance * quotient(p[token], q[token])))
            excess = mx.maximum(chance * p - q, 0.0)
            mass = excess.sum()
            p = mx.where(mass > 0, quotient(excess, mass), p)  # only rounding can leave no mass
            chance = quotient(mass, mass + 1 - chance) if node else chance  # the root keeps 1
            rest = mx.where(mx.arange(q.shape[0]) == token, 0.0, q)
            q = quotient(rest, rest.sum())
        order.nodes.append(node)
        order.chances.append(chance)
        order.bonus_probs.append(p)

    judge(0, mx.array(1.0))
    return order


def traversal_rule(order: Traversal, uniforms: mx.array) -> tuple[mx.array, mx.array]:
    """Select the first node that passes its test.

    Args:
        order: The nodes in the order of their tests.
        uniforms: (n_nodes - 1,) float32 in [0, 1), in the same order.

    Returns:
        () int32 last node of the accepted path and (V,) float32 distribution of the bonus token.
    """
    # Strict: u can be exactly 0, and a token without mass under p must not pass then.
    is_accepted = uniforms < mx.stack(order.chances[:-1])
    first = mx.argmax(mx.concatenate([is_accepted, mx.array([True])]))
    return mx.array(order.nodes, mx.int32)[first], mx.stack(order.bonus_probs)[first]


def quotient(numerator: mx.array, denominator: mx.array) -> mx.array:
    """Return the quotient, 0 where the denominator is 0."""
    is_safe = denominator > 0
    return mx.where(is_safe, numerator / mx.where(is_safe, denominator, 1.0), 0.0)
