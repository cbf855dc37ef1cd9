"""One round as the draft lane and the tree show it, and the running totals of all rounds.

A draft node is *accepted*; or *rejected*, if its parent is the root or accepted; else *skipped*,
because it was never verified. The target's own token ends the round as *corrected*, *bonus* or
*plain*. The *kept* tokens at the start of a branch belong to no round.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Literal

from mlxspec.trace.events import DraftNode, DraftProposed, DraftVerified, EmittedToken, PlainDecoded
from mlxspec.trace.stats import FORCED
from mlxspec_app.text.safe_text import token_label

Mark = Literal["accepted", "rejected", "skipped", "corrected", "bonus", "plain", "forced", "kept"]

_SHORTEST_S = 1e-6  # a trace may hold impossible times: avoid a division by 0


@dataclass(frozen=True)
class Round:
    """A finished target forward; `draft` is None in a plain round."""

    draft: DraftProposed | None
    verdict: DraftVerified | PlainDecoded

    @property
    def accepted(self) -> int:
        return len(self.verdict.path) if isinstance(self.verdict, DraftVerified) else 0

    @property
    def nodes(self) -> tuple[DraftNode, ...]:
        return self.draft.nodes if self.draft is not None else ()

    @property
    def sources(self) -> list[str]:
        """The drafter of each emitted token; "" for the target's own token."""
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
        return len({node.parent for node in self.nodes}) < len(self.nodes)


@dataclass(frozen=True)
class MarkedToken:
    """A token of a round and the verdict on it; `label` is short, without control characters."""

    label: str
    mark: Mark
    target_prob: float | None = None
    draft_prob: float | None = None


Position = tuple[MarkedToken, ...]
"""The tokens that competed for one position of the reply, the winner first if there is one."""


def positions(round_: Round) -> list[Position]:
    """Return the positions of a round from the root down.

    A position holds the accepted node and its rejected siblings. The next one holds the rejected
    children of the last accepted node and the target's own token. Skipped nodes follow, along
    their most probable branch.
    """
    verdict = round_.verdict
    if isinstance(verdict, PlainDecoded):
        return [tuple(map(mark_emitted, verdict.emit))]
    children = children_by_parent(round_.nodes)
    accepted_tokens = verdict.emit[: len(verdict.path)]
    own = list(map(mark_emitted, verdict.emit[len(verdict.path) :]))
    found: list[Position] = []
    last = 0
    for step, index in enumerate(verdict.path):
        target_prob = accepted_tokens[step].target_prob if step < len(accepted_tokens) else None
        winners = [node for node in children.get(last, []) if node.index == index]
        losers = [node for node in children.get(last, []) if node.index != index]
        text = accepted_tokens[step].text if step < len(accepted_tokens) else ""
        tokens = [
            MarkedToken(token_label(text or n.text), _mark_kept(n), target_prob, n.prob)
            for n in winners
        ]
        found.append((*tokens, *_mark_nodes(losers, "rejected")))
        last = index
    rest = children.get(last, [])
    if rest or own:
        found.append((*_mark_nodes(rest, "rejected"), *own))
    while rest and (rest := children.get(rest[0].index, [])):
        found.append(tuple(_mark_nodes(rest[:1], "skipped")))
    return found


def node_marks(round_: Round) -> dict[int, Mark]:
    """Return the verdict on each draft node, by its index."""
    path = round_.verdict.path if isinstance(round_.verdict, DraftVerified) else ()
    judged = {0, *path}

    def mark(node: DraftNode) -> Mark:
        if node.index in path:
            return _mark_kept(node)
        return "rejected" if node.parent in judged else "skipped"

    return {node.index: mark(node) for node in round_.nodes}


def mark_emitted(token: EmittedToken) -> MarkedToken:
    """Return an emitted token, marked with its kind."""
    return MarkedToken(token_label(token.text), token.kind, token.target_prob, token.draft_prob)


def children_by_parent(nodes: Iterable[DraftNode]) -> dict[int, list[DraftNode]]:
    """Return the children of each node by its index, the most probable first."""
    children: dict[int, list[DraftNode]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    for siblings in children.values():
        siblings.sort(key=lambda node: -(node.prob or 0.0))
    return children


def _mark_kept(node: DraftNode) -> Mark:
    return "forced" if node.source == FORCED else "accepted"


def _mark_nodes(nodes: Iterable[DraftNode], mark: Mark) -> list[MarkedToken]:
    return [MarkedToken(token_label(node.text), mark, None, node.prob) for node in nodes]


@dataclass
class Pace:
    """The progress of a reply, round by round: its charts need no loop over all rounds."""

    ends: list[float] = field(default_factory=list)  # seconds from the request; they never fall
    totals: list[int] = field(default_factory=list)  # tokens emitted by then
    accepted: list[float] = field(default_factory=list)  # draft tokens of rounds with a draft
    forwards: list[tuple[int, float]] = field(default_factory=list)  # their rows, milliseconds
    _rows: Counter[int] = field(default_factory=Counter)

    def add(self, round_: Round) -> None:
        last_end, last_total = (self.ends[-1], self.totals[-1]) if self.ends else (0.0, 0)
        # the times of a trace may fall, but `bisect_right` needs them in order
        self.ends.append(max(last_end, round_.verdict.ts))
        self.totals.append(last_total + len(round_.verdict.emit))
        rows = len(round_.nodes) + 1
        self.forwards.append((rows, round_.verdict.ms))
        if round_.nodes:
            self.accepted.append(float(round_.accepted))
            self._rows[rows] += 1

    @property
    def rows_in_use(self) -> int | None:
        """Median width of the rounds with a draft, root included; None without such rounds."""
        return int(median(self._rows.elements())) if self._rows else None

    def speeds(self, start: float, num_slices: int) -> list[float]:
        """Return the tokens/s in `num_slices` equal slices of the time from `start` to the end.

        The tokens of a round are spread over its time, so that a short slice is not empty.
        """
        slice_s = (self.ends[-1] - start) / num_slices if self.ends else 0.0
        if slice_s < _SHORTEST_S:
            return []
        bounds = (start + index * slice_s for index in range(1, num_slices))
        totals = [0.0, *(self._total_at(bound, start) for bound in bounds), self.totals[-1]]
        return [(after - before) / slice_s for before, after in pairwise(totals)]

    def _total_at(self, time_s: float, start: float) -> float:
        """Return the tokens emitted until a time before the end, interpolated within its round."""
        index = bisect_right(self.ends, time_s)
        begun, before = (self.ends[index - 1], self.totals[index - 1]) if index else (start, 0)
        share = (time_s - begun) / max(_SHORTEST_S, self.ends[index] - begun)
        return before + max(0.0, min(1.0, share)) * (self.totals[index] - before)
