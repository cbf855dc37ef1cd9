"""Hostile drafters: the output distribution must stay the same with each of them.

The last two state wrong facts of their drafts, which must be refused.
"""

import random
from dataclasses import replace

import mlx.core as mx
import numpy as np

from mlxspec.drafts.draft import Draft
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree


class Adversary:
    """Records prompts and outcomes; subclasses propose."""

    name = "adversary"
    num_top_tokens = 0

    def start(self, prompt, sampling, key):
        self.tokens = list(prompt[:-1])

    def update(self, round):
        self.tokens += [round.tokens[0], *round.accepted]


class FirstRoundOnly(Adversary):
    """Drafts in the first round, where `outcomes` goes through all draws; subclasses draw."""

    def __init__(self, outcomes):
        self.outcomes = outcomes

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.has_drafted = False

    def propose(self, root, budget):
        if self.has_drafted:
            return Draft.empty(root)
        self.has_drafted = True
        return self.drawn(root)


class AlwaysRight(Adversary):
    """Has the whole greedy reply in advance."""

    def __init__(self, text):
        self.text = text

    def propose(self, root, budget):
        here = len(self.tokens) + 1
        chain = [root, *self.text[here : here + budget]]
        return Draft.from_lists(chain, range(-1, len(chain) - 1), ["right"] * (len(chain) - 1))


class AlwaysWrong(AlwaysRight):
    """Has the reply in advance, and proposes other tokens."""

    def propose(self, root, budget):
        here = len(self.tokens) + 1
        right = self.text[here] if here < len(self.text) else 0
        tokens = [token for token in range(8) if token != right][:budget]
        return Draft.from_lists([root, *tokens], [-1, *[0] * len(tokens)], ["wrong"] * len(tokens))


class RandomTrees(Adversary):
    """Trees of any shape over a few frequent tokens."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def propose(self, root, budget):
        rng = random.Random(str(self.tokens) + str(root))
        tokens, parents = [root], [-1]
        for _ in range(rng.randint(0, budget)):
            parent, token = rng.randrange(len(tokens)), rng.randrange(self.vocab_size)
            if (parent, token) not in zip(parents[1:], tokens[1:], strict=True):
                tokens.append(token)
                parents.append(parent)
        return Draft.from_lists(tokens, parents, ["random"] * (len(tokens) - 1))


class Duplicates(RandomTrees):
    """A tree with every node twice, which `DraftTree.from_lists` would refuse."""

    def propose(self, root, budget):
        once = super().propose(root, budget // 2)
        n = once.tree.n_nodes
        tokens = mx.concatenate([once.tree.tokens, once.tree.tokens[1:]])
        parents = once.tree.parents.tolist()
        again = [0 if parent == 0 else parent + n - 1 for parent in parents[1:]]
        tree = DraftTree(tokens, mx.array([*parents, *again], mx.int32))
        return Draft(tree, ("twice",) * (tree.n_nodes - 1))


class DrawnTree(Adversary):
    """Siblings sampled without replacement from one distribution, which is stated correctly."""

    def __init__(self, vocab_size, widths=(2, 1)):
        self.probs = np.arange(1.0, vocab_size + 1) / np.arange(1.0, vocab_size + 1).sum()
        self.shape = TreeShape(widths)

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.random = np.random.default_rng(key.tolist())

    def propose(self, root, budget):
        levels = self.shape.levels
        if levels[-1].stop - 1 > budget:
            return Draft.empty(root)
        tokens = [root]
        for level, width in zip(levels, self.shape.widths, strict=False):
            scores = np.log(self.probs) + self.random.gumbel(size=(len(level), len(self.probs)))
            tokens += np.argsort(-scores, axis=1)[:, :width].ravel().tolist()
        tree = self.shape.tree(mx.array(tokens, mx.int32))
        rows = mx.array(np.tile(self.probs, (levels[-1].start, 1)), mx.float32)
        sources = ("drawn",) * (tree.n_nodes - 1)
        return Draft(tree, sources, sampled_from=rows, branching=self.shape)


class UniformChain(Adversary):
    """A chain sampled from the uniform distribution, which is stated correctly."""

    def __init__(self, vocab_size, length=3):
        self.vocab_size, self.length = vocab_size, length

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.key = key

    def propose(self, root, budget):
        length = min(budget, self.length)
        if not length:
            return Draft.empty(root)
        self.key, key = mx.random.split(self.key)
        drawn = mx.random.randint(0, self.vocab_size, (length,), key=key).astype(mx.int32)
        tree = DraftTree.chain(mx.concatenate([mx.array([root], mx.int32), drawn]))
        uniform = mx.full((length, self.vocab_size), 1 / self.vocab_size)
        return Draft(tree, ("uniform",) * length, sampled_from=uniform)


class NoLaw(UniformChain):
    """States probabilities with the sum 1/2, which are no distribution."""

    def propose(self, root, budget):
        draft = super().propose(root, budget)
        if draft.sampled_from is None:
            return draft
        return replace(draft, sampled_from=draft.sampled_from / 2)


class LawOfNothing(Adversary):
    """States a distribution for a draft without nodes."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def propose(self, root, budget):
        return replace(Draft.empty(root), sampled_from=mx.zeros((0, self.vocab_size)))


class SaysDeeper(RandomTrees):
    """States a maximum depth above the real depth, which is allowed."""

    def propose(self, root, budget):
        draft = super().propose(root, budget)
        return replace(draft, tree=replace(draft.tree, max_depth=99))


# ---- to be refused ---------------------------------------------------------------------------


class DrawnAndCut(UniformChain):
    """States its distribution and path probabilities; by these, a budget would drop nodes."""

    def propose(self, root, budget):
        draft = super().propose(root, budget)
        path_probs = [self.vocab_size**-depth for depth in range(1, draft.tree.n_nodes)]
        return replace(draft, path_probs=path_probs)


class SaysFlatter(Adversary):
    """A chain that states depth 1, so that all its nodes would get the same noise."""

    def propose(self, root, budget):
        chain = DraftTree.chain(mx.array([root, *[3, 7, 1][:budget]], mx.int32))
        tree = replace(chain, max_depth=min(budget, 1))
        return Draft(tree, ("flat",) * (tree.n_nodes - 1))
