"""The lossless rules: which draft tokens are accepted, and which token the target adds.

Let p be the target's distribution at a node, after temperature, filters and penalties, and q the
distribution from which a draft token was drawn. Every rule emits tokens whose joint distribution is
exactly the product of the p's. The match rule needs nothing from the drafter; the others need the
true q.

- `match_rule`, for drafts that are a function of the past: draw y ~ p at every node and go down
  while a child holds y. For a fixed tree no lossless rule accepts more. At temperature 0 this
  follows the argmax. The draw y depends only on p, the seed and the position, so any draft gives
  the text of plain sampling, even a draft with the same noise (Daliri et al. 2024,
  https://arxiv.org/abs/2408.07978).
- `token_rule`, for a chain sampled from q: accept x with probability min(1, p/q), replace the first
  rejected token by a draw from norm(max(p - q, 0)) (Leviathan et al. 2023,
  https://arxiv.org/abs/2211.17192; Chen et al. 2023, https://arxiv.org/abs/2302.01318).
- `block_rule`, for the same chains: decides on the whole block and never accepts less on average
  (Sun et al. 2024, https://arxiv.org/abs/2403.10444). The default.
- `traversal_rule`, for trees whose siblings were sampled from q without replacement; see
  `traversal.py` (Weng et al. 2025, https://arxiv.org/abs/2505.12398).

The rules are lazy: they never synchronise with the host.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import Rule, SamplingParams
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import Noise, draw, gumbel
from mlxspec.verify.traversal import quotient, traversal_rule, traverse


@dataclass(frozen=True)
class Verdict:
    """The result of verifying a draft tree; every field is a lazy MLX array."""

    accepted: mx.array  # (n_nodes,) bool, True at the nodes of the accepted path, with the root
    bonus_token: mx.array  # () int32 token that the target adds after the path
    from_residual: mx.array  # () bool, True if all children of the last accepted node were rejected


def verify(
    draft: Draft, distributions: NodeDistributions, noise: Noise, rule: Rule = "block"
) -> Verdict:
    """Verify a draft with the rule that fits how it was made.

    `distributions` are the target's after each node of the tree, and `noise` is at the position
    after the root. `rule` applies to sampled chains; "match" applies to sampled trees too.
    """
    if distributions.sampling.is_greedy:
        return match_rule(draft.tree, distributions.best())
    if is_matched(draft, distributions.sampling, rule):
        return match_rule(draft.tree, _chosen(draft.tree, distributions, noise))
    assert draft.sampled_from is not None, "only a sampled draft is not matched"
    tree, q = draft.tree, _distributions_only(draft.sampled_from)
    # Two keys: a draw with the noise of the acceptance tests would depend on their outcome.
    accept_key, bonus_key = mx.random.split(noise.key_for("verdict"))
    uniforms = mx.random.uniform(shape=(tree.n_nodes - 1,), key=accept_key)
    if draft.branching is not None:
        order = traverse(tree.tokens, draft.branching.children, distributions.probs, q)
        last, bonus_probs = traversal_rule(order, uniforms)
    else:
        chain_rule = block_rule if rule == "block" else token_rule
        last, bonus_probs = chain_rule(tree.tokens[1:], distributions.probs, q, uniforms)
    return Verdict(
        accepted=tree.ancestors[last],
        bonus_token=draw(bonus_probs[None], gumbel(1, bonus_probs.shape[0], bonus_key))[0],
        from_residual=last < q.shape[0],  # nodes with children have the first indices
    )


def is_matched(draft: Draft, sampling: SamplingParams, rule: Rule) -> bool:
    """Return whether the match rule verifies a draft: then the target draws its own tokens."""
    is_guess = draft.sampled_from is None or draft.tree.n_nodes == 1
    return sampling.is_greedy or is_guess or rule == "match"


def _distributions_only(draft_probs: mx.array) -> mx.array:
    """Return the rows that are distributions, with zeros for all others, such as rows with NaN.

    Every rule rejects a token drawn from a row of zeros, and treats its parent as a node without
    children. Rejecting the whole draft would change the output distribution: the nodes above are
    valid draws, and whether a row below is a distribution may depend on them.
    """
    totals = draft_probs.sum(axis=-1, keepdims=True)
    is_law = (mx.abs(totals - 1) < 1e-3) & (draft_probs.min(axis=-1, keepdims=True) >= 0)
    return mx.where(is_law, draft_probs, 0.0)


def _chosen(tree: DraftTree, distributions: NodeDistributions, noise: Noise) -> mx.array:
    """Return the token that the target draws after each node, (n_nodes,) int32."""
    levels = noise.gumbel(tree.num_levels, distributions.adjusted.shape[1])
    # A drafter may state a wrong max_depth of a lazy tree: never index beyond the rows of noise.
    depths = mx.minimum(tree.depths, tree.num_levels - 1)
    return distributions.draw(levels if tree.n_nodes == 1 else levels[depths])


def match_rule(tree: DraftTree, chosen: mx.array) -> Verdict:
    """Go down from the root while a child holds the token that the target chose at its parent.

    The tree must not depend on `chosen`, the (n_nodes,) int32 tokens that the target draws after
    each node.
    """
    parents, tokens = tree.parents, tree.tokens
    matches = tokens == chosen[mx.maximum(parents, 0)]
    same = (parents[:, None] == parents[None]) & (tokens[:, None] == tokens[None])
    # Of two siblings with one token only the first may be accepted. Choosing the one with the
    # longer accepted path would change the output distribution.
    is_repeat = (same & mx.tri(tree.n_nodes, k=-1, dtype=mx.bool_)).any(axis=1)
    is_root = parents < 0
    broken = ~((matches & ~is_repeat) | is_root)
    accepted = ~(tree.ancestors & broken[None]).any(axis=1)
    # At most one child matches, so the accepted nodes are one path and the deepest is its end.
    last = mx.argmax(mx.where(accepted, tree.depths, -1))
    return Verdict(
        accepted=accepted,
        bonus_token=chosen[last],
        from_residual=(parents == last).any(),
    )


def token_rule(
    tokens: mx.array, target_probs: mx.array, draft_probs: mx.array, uniforms: mx.array
) -> tuple[mx.array, mx.array]:
    """Accept each token of a chain on its own, up to the first rejection.

    Args:
        tokens: (n,) int32 draft tokens, drawn from the rows of `draft_probs`.
        target_probs: (n + 1, V) float32 distribution p of each token and of the one after them.
        draft_probs: (n, V) float32 distribution q of each token.
        uniforms: (n,) float32 in [0, 1).

    Returns:
        () int32 number of accepted tokens and (V,) float32 distribution of the bonus token.
    """
    p, q = _at(target_probs[:-1], tokens), _at(draft_probs, tokens)
    # Strict: u can be exactly 0, and a token without mass under p must not pass then. q is 0 if the
    # row was no distribution (`_distributions_only`), and no token drawn from it may pass.
    kept = (uniforms * q < p) & (q > 0)
    num_accepted = mx.cumprod(kept.astype(mx.int32)).sum()
    weights = mx.ones(target_probs.shape[0])
    return num_accepted, _residual(target_probs, draft_probs, weights, num_accepted)


def block_rule(
    tokens: mx.array, target_probs: mx.array, draft_probs: mx.array, uniforms: mx.array
) -> tuple[mx.array, mx.array]:
    """Accept the longest prefix of a chain that passes its own acceptance test.

    Each prefix has one test with one uniform; a shorter prefix that fails does not stop a longer
    one. Arguments and result are those of `token_rule`.
    """
    weights = _prefix_weights(_at(target_probs[:-1], tokens), _at(draft_probs, tokens))
    n = tokens.shape[0]
    excess = mx.maximum(weights[:-1, None] * target_probs[:-1] - draft_probs, 0.0)
    inner = excess.sum(axis=-1)[1:]  # the mass of max(w p - q, 0), for prefixes of 1..n-1 tokens
    # The whole chain has no q after it, so its threshold is its weight.
    thresholds = mx.concatenate([quotient(inner, inner + 1 - weights[1:-1]), weights[-1:]])
    lengths = mx.where(uniforms < thresholds, mx.arange(1, n + 1), 0)
    num_accepted = lengths.max()
    return num_accepted, _residual(target_probs, draft_probs, weights, num_accepted)


def _prefix_weights(p: mx.array, q: mx.array) -> mx.array:
    """Return the (n + 1,) weights w_0 = 1 and w_i = min(1, w_(i-1) p_i / q_i)."""
    weights = [mx.ones(1)]
    for ratio in mx.split(quotient(p, q), p.shape[0]):
        weights.append(mx.minimum(1.0, weights[-1] * ratio))
    return mx.concatenate(weights)


def _residual(
    target_probs: mx.array, draft_probs: mx.array, weights: mx.array, row: mx.array
) -> mx.array:
    """Return norm(max(w p - q, 0)) of a row, (V,) float32; p itself after the last draft token.

    If rounding leaves no mass, p and q agree and the result is p.
    """
    zero = mx.zeros((1, draft_probs.shape[1]))  # the q after the last draft token
    p = target_probs[row]
    excess = mx.maximum(weights[row] * p - mx.concatenate([draft_probs, zero])[row], 0.0)
    mass = excess.sum()
    # mx.where computes both sides: the bound keeps 0 / 0 out of the one that is not used.
    return mx.where(mass > 0, excess / mx.maximum(mass, 1e-38), p)


def _at(rows: mx.array, tokens: mx.array) -> mx.array:
    return mx.take_along_axis(rows, tokens[:, None], axis=1)[:, 0]
