"""One round as the draft lane and the tree show it: which token met which verdict.

A drafted node was *accepted*, or *rejected* as a child of the last kept node, or *skipped*: never
judged, because a node above it or beside it had settled the matter. The target's own token ends
the round as *corrected*, *bonus* or *plain*.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mlxspec.trace.events import DraftNode, DraftProposed, DraftVerified, EmittedToken, PlainDecoded
from mlxspec_app.text.safe_text import token_label

Mark = Literal["accepted", "rejected", "skipped", "corrected", "bonus", "plain"]


@dataclass(frozen=True)
class Round:
    """A finished target forward.

    Attributes:
        draft: What was proposed; None where nothing was.
        verdict: What the target made of it.
    """

    draft: DraftProposed | None
    verdict: DraftVerified | PlainDecoded

    @property
    def accepted(self) -> int:
        """Drafted nodes that were kept."""
        return len(self.verdict.path) if isinstance(self.verdict, DraftVerified) else 0

    @property
    def nodes(self) -> tuple[DraftNode, ...]:
        return self.draft.nodes if self.draft is not None else ()

    @property
    def sources(self) -> list[str]:
        """Per emitted token, the drafter that proposed it; "" where it is the target's own."""
        by_index = {node.index: node.source for node in self.nodes}
        path = self.verdict.path if isinstance(self.verdict, DraftVerified) else ()
        drafted = [by_index.get(index, "") for index in path]
        return [*drafted, *[""] * len(self.verdict.emit)][: len(self.verdict.emit)]

    @property
    def depth(self) -> int:
        """Edges from the root to the deepest node."""
        depths = {0: 0}
        for node in self.nodes:
            depths[node.index] = depths.get(node.parent, 0) + 1
        return max(depths.values())

    @property
    def is_tree(self) -> bool:
        """Whether any node has a sibling."""
        return len({node.parent for node in self.nodes}) < len(self.nodes)


@dataclass(frozen=True)
class Judged:
    """A token of a round and what became of it.

    Attributes:
        label: Its text, short and harmless.
        mark: The verdict.
        target_prob: p, the target's probability, where it is known.
        draft_prob: q, the drafter's probability, where it is known.
    """

    label: str
    mark: Mark
    target_prob: float | None = None
    draft_prob: float | None = None


@dataclass(frozen=True)
class Place:
    """The tokens that competed for one place of the reply, the winner first if there is one."""

    tokens: tuple[Judged, ...]


def places(round_: Round) -> list[Place]:
    """Return the places of a round from the root down, the target's own token with the last.

    A place holds the kept node and its rejected siblings; where every draft was rejected it
    holds these and the correction. Below that, skipped nodes follow along their first branch.
    """
    verdict = round_.verdict
    own = [judge_emitted(token) for token in verdict.emit if token.kind != "accepted"]
    if isinstance(verdict, PlainDecoded):
        return [Place(tuple(own))]
    children = children_by_parent(round_.nodes)
    kept_tokens = [token for token in verdict.emit if token.kind == "accepted"]
    found: list[Place] = []
    last = 0
    for step, index in enumerate(verdict.path):
        target_prob = kept_tokens[step].target_prob if step < len(kept_tokens) else None
        winners = [node for node in children.get(last, []) if node.index == index]
        losers = [node for node in children.get(last, []) if node.index != index]
        tokens = [Judged(token_label(n.text), "accepted", target_prob, n.prob) for n in winners]
        found.append(Place((*tokens, *_judge(losers, "rejected"))))
        last = index
    rest = children.get(last, [])
    if rest or own:
        found.append(Place((*_judge(rest, "rejected"), *own)))
    while rest and (rest := children.get(rest[0].index, [])):
        found.append(Place(tuple(_judge(rest[:1], "skipped"))))
    return found


def node_marks(round_: Round) -> dict[int, Mark]:
    """Return the verdict on each drafted node, by its index."""
    path = round_.verdict.path if isinstance(round_.verdict, DraftVerified) else ()
    judged = {0, *path}

    def mark(node: DraftNode) -> Mark:
        if node.index in path:
            return "accepted"
        return "rejected" if node.parent in judged else "skipped"

    return {node.index: mark(node) for node in round_.nodes}


def judge_emitted(token: EmittedToken) -> Judged:
    """Return an emitted token under the name of its kind."""
    return Judged(token_label(token.text), token.kind, token.target_prob, token.draft_prob)


def children_by_parent(nodes: Iterable[DraftNode]) -> dict[int, list[DraftNode]]:
    """Return the nodes below each node, the more probable ones first."""
    children: dict[int, list[DraftNode]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    for siblings in children.values():
        siblings.sort(key=lambda node: -(node.prob or 0.0))
    return children


def _judge(nodes: Iterable[DraftNode], mark: Mark) -> list[Judged]:
    return [Judged(token_label(node.text), mark, None, node.prob) for node in nodes]
