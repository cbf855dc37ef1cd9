"""The draft that a drafter returns, and its checks.

A draft without q is a guess: the match rule verifies it, and no guess changes the output
distribution. A draft with q is trusted: a wrong q changes the output distribution. So everything
that can be checked from outside is checked: shapes and types before the forward, nodes before the
commit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real

import mlx.core as mx

from mlxspec.device.backend import values
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree

_ROUNDING = 1e-6


@dataclass(frozen=True)
class Draft:
    """A draft tree and how it was made.

    A draft with `sampled_from` is lossless only if its tokens were drawn from exactly these
    distributions. The drafter must also obey two rules that no check can see: the noise of each
    draw is independent of all other draws and of the target's noise; whether a node is in the draft
    depends neither on its own token nor on later ones. `mlxspec.testing.check_drafter` tests a
    drafter for these rules.

    Attributes:
        tree: The root and the proposed nodes; tokens and parents may be lazy.
        sources: Name of the proposing drafter for each node except the root.
        node_probs: (n_nodes - 1,) float32 drafter's estimate of each node's token after its parent,
            for display and calibration; None without an estimate.
        sampled_from: (m, V) float32 distribution q after each of the first m nodes, from which
            their children were *drawn* without replacement, in their order; m is the number of
            nodes with children. A draw is rejected if its row does not sum to 1 (tolerance 0.001).
            None means that the tree is a function of the past; it selects the match rule.
        branching: The shape of a sampled tree, chosen before its tokens; None for a chain.
        path_probs: Drafter's estimate, per node except the root, that the target accepts its whole
            path; never larger than that of its parent. The budget may cut the draft by these
            estimates, so it must not be a sampled draft, and its arrays must not be lazy. None if
            the estimates are not on the host.
        num_certain: Number of first nodes that are a chain below the root and certain to be
            accepted, because a grammar allows nothing else. They are not guesses: no budget cuts
            them.
        ends_reply: Whether the draft has only certain nodes and the reply ends with them: no
            forward is needed.
    """

    tree: DraftTree
    sources: tuple[str, ...] = ()
    node_probs: mx.array | None = None
    sampled_from: mx.array | None = None
    branching: TreeShape | None = None
    path_probs: Sequence[float] | None = None
    num_certain: int = 0
    ends_reply: bool = False

    @staticmethod
    def empty(root: int) -> "Draft":
        """Return the draft of only the root: plain decoding."""
        return Draft(DraftTree.from_lists([root], [-1]))

    @staticmethod
    def from_lists(
        tokens: Sequence[int],
        parents: Sequence[int],
        sources: Sequence[str],
        node_probs: Sequence[float] | None = None,
        path_probs: Sequence[float] | None = None,
    ) -> "Draft":
        """Return a deterministic draft from lists; tokens and parents start with the root's."""
        tree = DraftTree.from_lists(tokens, parents)
        probs = None if node_probs is None else mx.array(list(node_probs), mx.float32)
        return Draft(tree, tuple(sources), probs, path_probs=path_probs)

    def first(self, count: int) -> "Draft":
        """Return the first `count` nodes below the root of a draft with `path_probs`."""
        assert self.path_probs is not None
        assert self.sampled_from is None, "a drawn node must not be dropped for its probability"
        if count >= self.tree.n_nodes - 1:
            return self
        tokens, parents = self.tree.lists()
        tree = DraftTree.from_lists(tokens[: count + 1], parents[: count + 1])
        probs = None if self.node_probs is None else mx.array(values(self.node_probs)[:count])
        return replace(
            self,
            tree=tree,
            sources=self.sources[:count],
            node_probs=probs,
            path_probs=self.path_probs[:count],
        )

    def below(self, root: int, run: Sequence[int], source: str) -> "Draft":
        """Return a draft with root `root`, a run of certain tokens, and this draft after the run.

        The last token of the run is the root of this draft. `source` is that of the run's nodes. An
        empty run returns the draft itself.
        """
        if not run:
            return self
        count, tree, ones = len(run), self.tree, mx.ones((len(run),))
        probs = None if self.node_probs is None else mx.concatenate([ones, self.node_probs])
        estimates = None if self.path_probs is None else [*[1.0] * count, *self.path_probs]
        if tree.n_nodes == 1:
            probs, estimates = ones, [1.0] * count
        return Draft(
            DraftTree(
                mx.concatenate([mx.array([root, *run], mx.int32), tree.tokens[1:]]),
                mx.concatenate([mx.arange(-1, count, dtype=mx.int32), tree.parents[1:] + count]),
                None if tree.max_depth is None else tree.max_depth + count,
            ),
            (*(source,) * count, *self.sources),
            probs,
            _with_certain(self.sampled_from, run),
            self.branching and TreeShape((*(1,) * count, *self.branching.widths)),
            estimates,
            num_certain=count,
        )

    def first_path(self) -> "Draft":
        """Return the chain of first children below the root, for a target that verifies no trees.

        This is lossless. Only the shape decides which nodes stay, and it depends on no drawn token.
        The first of several siblings is a plain draw from q, so the rest of a drawn tree is a chain
        drawn from the rows of q on its path. A guess stays a guess.
        """
        drawn = self._drawn_parents
        parents: Sequence[int] = self.tree.parent_list() if drawn is None else drawn
        path = [0]
        for node, parent in enumerate(parents):
            if parent == path[-1] and node > parent:
                path.append(node)
        if len(path) == len(parents):
            return self
        nodes = mx.array(path, mx.int32)
        below = [node - 1 for node in path[1:]]
        return Draft(
            replace(DraftTree.chain(self.tree.tokens[nodes]), max_depth=len(below)),
            tuple(self.sources[index] for index in below),
            None if self.node_probs is None else self.node_probs[nodes[1:] - 1],
            None if self.sampled_from is None else self.sampled_from[nodes[:-1]],
            path_probs=self.path_probs and [self.path_probs[index] for index in below],
            num_certain=self.num_certain,
        )

    def check(self, drafter: str, budget: int, vocab_size: int) -> None:
        """Raise ValueError if it cannot be verified; check only what needs no computed array."""
        fault = next(self._faults(budget, vocab_size), None)
        if fault is not None:
            raise ValueError(f"the drafter {drafter!r} proposed {fault}")

    def check_nodes(
        self,
        drafter: str,
        tokens: Sequence[int],
        parents: Sequence[int],
        root: int,
        vocab_size: int,
    ) -> None:
        """Raise ValueError if its computed nodes are not a tree below the root.

        Tokens and parents are those of the tree, on the host. Two siblings with one token are
        allowed in a tree that was not sampled: the match rule ignores the second.
        """
        fault = next(self._node_faults(tokens, parents, root, vocab_size), None)
        if fault is not None:
            raise ValueError(f"the drafter {drafter!r} proposed what is not a draft tree: {fault}")

    def _faults(self, budget: int, vocab_size: int) -> Iterator[str]:
        tokens = self.tree.tokens
        n_nodes = len(tokens) if isinstance(tokens, mx.array) and tokens.ndim else 1
        yield from _array_faults("a tree", "tokens", tokens, (max(n_nodes, 1),), mx.int32)
        yield from _array_faults("a tree", "parents", self.tree.parents, (n_nodes,), mx.int32)
        num_nodes = n_nodes - 1
        if num_nodes > budget:
            yield f"{num_nodes} nodes; it was given a budget of {budget}"
        yield from self._claims(f"{num_nodes} nodes", num_nodes, vocab_size)

    def _claims(self, nodes: str, num_nodes: int, vocab_size: int) -> Iterator[str]:
        """Yield the faults in the attributes that describe the nodes."""
        if self.branching is not None and not isinstance(self.branching, TreeShape):
            yield f"{nodes} with branching {self.branching!r}; it has to be a TreeShape, or None"
        parents, depth = self._drawn_parents, self.tree.max_depth
        if not _is_list(self.sources) or len(self.sources) != num_nodes:
            yield f"{nodes} with sources {self.sources!r}; it has to be a tuple of {num_nodes}"
        if not all(isinstance(source, str) for source in self.sources):
            yield f"{nodes} with sources {self.sources!r}; each is the name of a drafter"
        if depth is not None and (type(depth) is not int or depth < min(num_nodes, 1)):
            yield f"{nodes} with max_depth {depth!r}; it is a whole number from 1, or None"
        if self.node_probs is not None:
            shape = (num_nodes,)
            yield from _array_faults(nodes, "node_probs", self.node_probs, shape, mx.float32)
        if parents is not None:
            if len(parents) != num_nodes + 1:
                yield f"{nodes} with a branching of {len(parents) - 1}; it has to be the tree's"
            distributions = (len(set(parents[1:])), vocab_size)
            yield from _array_faults(
                nodes, "sampled_from", self.sampled_from, distributions, mx.float32
            )
        if self.path_probs is not None:
            if parents is not None:
                yield (
                    f"{nodes} with both sampled_from and path_probs: a sampled draft must not be "
                    "cut by the tokens that were drawn; leave path_probs out"
                )
            if not _is_list(self.path_probs) or len(self.path_probs) != num_nodes:
                yield f"{nodes} with path_probs {self.path_probs!r}; it has to be one number each"
            yield from _path_faults(nodes, self.path_probs)

    def _node_faults(
        self, tokens: Sequence[int], parents: Sequence[int], root: int, vocab_size: int
    ) -> Iterator[str]:
        drawn, most, depths = self._drawn_parents, self.tree.max_depth, [0]
        if (tokens[0], parents[0]) != (root, -1):
            yield f"node 0 holds token {tokens[0]}; it has to be the root {root}"
        for node, (token, parent) in enumerate(zip(tokens[1:], parents[1:], strict=True), 1):
            if not 0 <= parent < node:
                yield f"node {node} has parent {parent}; allowed are 0 to {node - 1}"
            elif not 0 <= token < vocab_size:
                yield f"node {node} holds token {token}; allowed are 0 to {vocab_size - 1}"
            depths.append(depths[parent] + 1)
            if most is not None and depths[-1] > most:
                yield f"node {node} is {depths[-1]} deep; the max_depth of its tree is {most}"
        if drawn is None:
            return
        if list(drawn) != list(parents):
            yield f"it was drawn with parents {list(drawn)}; its tree has {list(parents)}"
        if len(set(zip(parents, tokens, strict=True))) < len(tokens):
            yield "two siblings hold one token; siblings are drawn without replacement"

    @property
    def _drawn_parents(self) -> Sequence[int] | None:
        """The parents that a sampled tree must have, root first; None for other trees."""
        if self.sampled_from is None:
            return None
        return self.branching.parents if self.branching else range(-1, self.tree.n_nodes - 1)


def _with_certain(sampled_from: mx.array | None, run: Sequence[int]) -> mx.array | None:
    """Return q with one more row in front for each certain token, which has all of its mass."""
    if sampled_from is None:
        return None
    certain = mx.array(list(run))[:, None] == mx.arange(sampled_from.shape[1])
    return mx.concatenate([certain.astype(mx.float32), sampled_from])


def _is_list(given: object) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str)


def _array_faults(
    nodes: str, name: str, array: object, shape: tuple[int, ...], dtype: mx.Dtype
) -> Iterator[str]:
    """Yield the faults in the type and shape of an array, which may be lazy."""
    if not isinstance(array, mx.array):
        yield f"{nodes} with {name} that is a {type(array).__name__}; it has to be an mx.array"
    elif array.shape != shape:
        yield f"{nodes} with {name} of shape {array.shape}; it has to be {shape}"
    elif array.dtype != dtype:
        yield f"{nodes} with {name} of type {array.dtype}; it has to be {dtype}"


def _path_faults(nodes: str, path_probs: Sequence[float]) -> Iterator[str]:
    before: float = 1.0
    for prob in path_probs:
        if not isinstance(prob, Real) or not 0 <= prob <= before * (1 + _ROUNDING):
            yield f"{nodes} with a path probability {prob!r}; after {before!r} it is from 0 to that"
        before = prob
