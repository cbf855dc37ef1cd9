r"""Verify a tree whose siblings were drawn from q without replacement, from its leaves to the root.

Every node v has a chance a(v) = min(1, a(u) p_u(x) / q_u(x)) below its parent u, the root's is 1.
The leftmost leaf is accepted, with all of its path, with its chance. Else it is taken away, and
its parent knows: with r = max(a(u) p_u - q_u, 0) and S = sum(r), the parent's law becomes r / S,
its chance S / (S + 1 - a(u)), and q_u loses the token and is normalised. A node without children
is a leaf in its turn, and the root as a leaf is always accepted. The bonus token is drawn from the
law of the accepted node as it is by then (Weng et al. 2025, https://arxiv.org/abs/2505.12398).

        root           leaves are judged in the order 2, 3, 1, 5, 4, root: what a rejection
       /    \          changes lies on the way up, and whatever is judged later is computed
      1      4         from it; nothing has to be read on the host
     / \     |
    2   3    5

On a tree without branches this is block verification (`verify.block_rule`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx


@dataclass
class Traversal:
    """The nodes in the order in which they are judged, each after all before it were rejected.

    Attributes:
        nodes: Their indices; the root is the last.
        chances: () float32 each: with what chance it is accepted.
        laws: (V,) float32 each: the law of the bonus token after it.
    """

    nodes: list[int] = field(default_factory=list)
    chances: list[mx.array] = field(default_factory=list)
    laws: list[mx.array] = field(default_factory=list)

    def add(self, node: int, chance: mx.array, law: mx.array) -> None:
        """Judge a node next."""
        self.nodes.append(node)
        self.chances.append(chance)
        self.laws.append(law)


def traverse(
    tokens: mx.array,
    children: Sequence[Sequence[int]],
    target_probs: mx.array,
    draft_probs: mx.array,
) -> Traversal:
    """Return with what chance each node of a tree is accepted; lazy.

    Args:
        tokens: (n_nodes,) int32, the root first.
        children: Of every node, in the order in which they were drawn.
        target_probs: (n_nodes, V) float32 target's law after each node.
        draft_probs: (m, V) float32 law after each of the first m nodes, which are those with
            children, that these were drawn from without replacement.
    """
    order = Traversal()
    _Tree(tokens, children, target_probs, draft_probs, order).judge(0, mx.array(1.0))
    return order


def traversal_rule(order: Traversal, uniforms: mx.array) -> tuple[mx.array, mx.array]:
    """Return the node that ends the accepted path, () int32, and the (V,) law of the bonus token.

    Args:
        order: The nodes as they are judged.
        uniforms: (n_nodes - 1,) float32 in [0, 1), in the order of `order`.
    """
    # Strict: u can be exactly 0, and a token without mass under p must not pass then.
    is_accepted = uniforms < mx.stack(order.chances[:-1])
    first = mx.argmax(mx.concatenate([is_accepted, mx.array([True])]))
    return mx.array(order.nodes, mx.int32)[first], mx.stack(order.laws)[first]


@dataclass(frozen=True)
class _Tree:
    """A drafted tree while its nodes are put in order; see `traverse`."""

    tokens: mx.array
    children: Sequence[Sequence[int]]
    target_probs: mx.array
    draft_probs: mx.array
    order: Traversal

    def judge(self, node: int, chance: mx.array) -> None:
        """Judge a node with what is below it, its chance being () float32 by now."""
        law = self.target_probs[node]
        if self.children[node]:
            chance, law = self._all_below_rejected(node, chance, law)
        self.order.add(node, chance, law)

    def _all_below_rejected(
        self, node: int, chance: mx.array, p: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Judge the children of a node; return its chance and its law after all of them."""
        q = self.draft_probs[node]
        for child in self.children[node]:
            token = self.tokens[child]
            self.judge(child, mx.minimum(1.0, chance * _ratio(p[token], q[token])))
            excess = mx.maximum(chance * p - q, 0.0)
            mass = excess.sum()
            p = mx.where(mass > 0, _ratio(excess, mass), p)  # by rounding alone there is none
            chance = _ratio(mass, mass + 1 - chance) if node else chance
            rest = mx.where(mx.arange(q.shape[0]) == token, 0.0, q)
            q = _ratio(rest, rest.sum())
        return chance, p


def _ratio(numerator: mx.array, denominator: mx.array) -> mx.array:
    is_safe = denominator > 0
    return mx.where(is_safe, numerator / mx.where(is_safe, denominator, 1.0), 0.0)
