"""The exact joint distribution of a reply's first tokens: every outcome of every random choice.

An engine writes a reply again and again, each time with other outcomes, depth first. A choice takes
the place of the random numbers of a verdict: where the rule ends, by the probabilities that the
rule itself computes, and the bonus token. The rule then gives the verdict of that choice.
"""

from collections import Counter
from itertools import product

import mlx.core as mx
import numpy as np

from mlxspec.device import backend
from mlxspec.reply import verification
from mlxspec.trace.events import DrafterFailed
from mlxspec.verify.rules import Verdict, block_rule, match_rule, token_rule
from mlxspec.verify.traversal import traversal_rule, traverse

TOP = 1 - 2.0**-24  # the largest uniform


class Outcomes:
    """All runs of a program that makes its random choices here.

    Attributes:
        end: Position after the tokens whose distribution is wanted.
        weight: Probability of the choices of this run.
        last: Distribution of the bonus token that ends those tokens, which is not chosen; None
            where a draft token ends them.
    """

    def __init__(self, end: int):
        self.end, self.weight, self.last = end, 1.0, None
        self._script: list[int] = []  # the choices that this run repeats
        self._made: list[tuple[int, int]] = []  # by choice of this run: which outcome, of how many

    def runs(self):
        """Yield before each run."""
        while True:
            self.weight, self.last, self._made = 1.0, None, []
            yield
            while self._made and self._made[-1][0] + 1 == self._made[-1][1]:
                self._made.pop()
            if not self._made:
                return
            self._script = [index for index, _ in self._made]
            self._script[-1] += 1

    def choose(self, outcomes):
        """Return an outcome of these (probability, outcome), another one in another run."""
        possible = [pair for pair in outcomes if pair[0] > 0]
        at = len(self._made)
        index = self._script[at] if at < len(self._script) else 0
        self._made.append((index, len(possible)))
        self.weight *= possible[index][0]
        return possible[index][1]

    def verify(self, draft, distributions, noise, rule="block"):
        """As `mlxspec.verify.rules.verify`, with a choice in place of random numbers."""
        left = self.end - noise.position
        outcomes = []
        for weight, depth, bonus, verdict_with in _ends(draft, distributions.probs, rule):
            if depth + 1 >= left:
                outcomes.append((weight, (depth + 1 == left, bonus, verdict_with(bonus.argmax()))))
            else:
                outcomes += [
                    (weight * prob, (False, bonus, verdict_with(token)))
                    for token, prob in enumerate(bonus)
                ]
        if left <= 0:  # a round after the end, which was launched ahead
            return outcomes[0][1][2]
        is_last, bonus, verdict = self.choose(outcomes)
        self.last = bonus if is_last else None
        return verdict


def joint_of_engine(engine, make_drafter, prompt, params, length, monkeypatch):
    """Return {first tokens: probability} of an engine's replies, and the mean accepted number."""
    outcomes = Outcomes(len(prompt) + length)
    monkeypatch.setattr(backend, "verifies_on_host", lambda: False)
    monkeypatch.setattr(verification, "verify", outcomes.verify)
    joint, mean = Counter(), 0.0
    for _ in outcomes.runs():
        drafter, tokens, num_accepted = make_drafter(outcomes), [], 0
        events = engine.generate(
            prompt, params, drafter=drafter, should_stop=lambda said=tokens: len(said) >= length
        )
        for event in events:
            assert not isinstance(event, DrafterFailed), event.message
            tokens += [token.token for token in getattr(event, "emit", ())]
            num_accepted += len(getattr(event, "path", ()))
        mean += outcomes.weight * num_accepted
        text = tuple(tokens[:length])
        if outcomes.last is None:
            joint[text] += outcomes.weight
        else:
            for token, prob in enumerate(outcomes.last):
                joint[(*text[:-1], token)] += outcomes.weight * prob
    return joint, mean


def _ends(draft, probs, rule):
    """Yield (probability, depth, bonus distribution, verdict with a bonus token) of each end."""
    if draft.sampled_from is None:
        return _ends_of_fixed(draft, probs)
    if draft.branching is None:
        return _ends_of_chain(draft, probs, {"token": token_rule, "block": block_rule}[rule])
    return _ends_of_sampled(draft, probs)


def _ends_of_fixed(draft, probs):
    """As `_ends`, for a draft that was not sampled."""
    tokens, parents = draft.tree.tokens.tolist(), draft.tree.parents.tolist()
    rows = np.array(probs, np.float64)
    reached, chosen, depths = [1.0], [{}], [0]  # chosen: by node of the path, the token drawn
    for token, parent in zip(tokens[1:], parents[1:], strict=True):
        reached.append(reached[parent] * rows[parent, token])
        chosen.append({**chosen[parent], parent: token})
        depths.append(depths[parent] + 1)
    for node, weight in enumerate(reached):
        children = [t for t, parent in zip(tokens, parents, strict=True) if parent == node]
        bonus = rows[node].copy()
        bonus[children] = 0
        total = bonus.sum()
        if total == 0:
            continue

        def verdict(token, node=node):
            drawn = {**chosen[node], node: int(token)}
            draws = mx.array([drawn.get(at, 0) for at in range(len(tokens))], mx.int32)
            return match_rule(draft.tree, draws)

        yield weight * total, depths[node], bonus / total, verdict


def _ends_of_sampled(draft, probs):
    """As `_ends`, for a draft that was sampled as a tree."""
    order = traverse(draft.tree.tokens, draft.branching.children, probs, draft.sampled_from)
    chances, left, depths = [chance.item() for chance in order.chances], 1.0, draft.tree.depths
    for at, node in enumerate(order.nodes):
        uniforms = mx.array([TOP] * at + [0.0] * (len(chances) - 1 - at))
        bonus = np.array(order.bonus_probs[at], np.float64)

        def verdict(token, uniforms=uniforms):
            last, _ = traversal_rule(order, uniforms)
            return Verdict(
                accepted=draft.tree.ancestors[last],
                bonus_token=mx.array(int(token), mx.int32),
                from_residual=last < draft.sampled_from.shape[0],
            )

        yield left * chances[at], depths[node].item(), bonus / bonus.sum(), verdict
        left *= 1 - chances[at]


def _ends_of_chain(draft, probs, chain_rule):
    """As `_ends`, for a sampled chain: the rule judges it on either side of every threshold.

    The thresholds are those of the papers; a rule with other ones gives another verdict near them.
    """
    edges = THRESHOLDS[chain_rule](
        draft.tree.tokens.tolist()[1:],
        np.array(probs, np.float64),
        np.array(draft.sampled_from, np.float64),
    )
    for passes in product((True, False), repeat=len(edges)):
        weight = np.prod([x if kept else 1 - x for x, kept in zip(edges, passes, strict=True)])
        if weight < 1e-7:  # by rounding: two distributions that agree differ in their last digit
            continue
        uniforms = [
            0.999 * x if kept else x + 0.001 * (1 - x)
            for x, kept in zip(edges, passes, strict=True)
        ]
        last, bonus = chain_rule(
            draft.tree.tokens[1:], probs, draft.sampled_from, mx.array(uniforms, mx.float32)
        )
        row = np.array(bonus, np.float64)

        def verdict(token, last=last):
            return Verdict(
                accepted=draft.tree.ancestors[last],
                bonus_token=mx.array(int(token), mx.int32),
                from_residual=last < len(edges),
            )

        yield weight, last.item(), row / row.sum(), verdict


def _token_thresholds(tokens, p, q):
    """Accept a token with probability min(1, p / q) (Leviathan et al. 2023)."""
    return [min(1.0, p[at, token] / q[at, token]) for at, token in enumerate(tokens)]


def _block_thresholds(tokens, p, q):
    """Accept a prefix with the probability of block verification (Sun et al. 2024, algorithm 2)."""
    weight, found = 1.0, []
    for at, token in enumerate(tokens):
        weight = min(1.0, weight * p[at, token] / q[at, token])
        if at + 1 == len(tokens):
            return [*found, weight]
        excess = np.maximum(weight * p[at + 1] - q[at + 1], 0).sum()
        whole = excess + 1 - weight
        found.append(excess / whole if whole > 0 else 0.0)
    return found


THRESHOLDS = {token_rule: _token_thresholds, block_rule: _block_thresholds}
