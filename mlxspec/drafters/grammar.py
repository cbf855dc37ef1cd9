"""The drafter under a constraint: first the forced tokens, then another drafter's guesses.

If a grammar allows only one token, that token is certain, and so is a run of such tokens. The run
is the start of the tree, and the other drafter's guesses hang below its end, so it costs no forward
of its own. The grammar prunes a guess that is a function of the past before the forward, and its
tree is regrown with the forced tokens inside it. A drawn draft stays as it was drawn: dropping a
node because of its token would change q. Below a run, the other drafter draws from the end of the
run if it needs only the text; otherwise the run is proposed alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import mlx.core as mx

from mlxspec.drafters.base import Drafter, WrappingDrafter
from mlxspec.drafters.search.growth import Cursor, grow, read_draft
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.grammar.constraint import Constraint, Path
from mlxspec.params import SamplingParams
from mlxspec.trace.stats import FORCED, GRAMMAR

_FEW = 4  # up to this many allowed tokens are all proposed


class GrammarDrafter(WrappingDrafter):
    """Proposes what a grammar forces, and below it what another drafter proposes."""

    def __init__(self, constraint: Constraint, drafter: Drafter) -> None:
        """Wrap a drafter; `constraint` has the grammar and the text of the reply so far."""
        super().__init__(GRAMMAR, drafter)
        if not constraint.has_grammar:  # most rounds are those of the other drafter
            self.name = self._beside.name
        self._constraint = constraint
        self._told: Path = ()  # the run that the other drafter read before its draft
        self._needs_text_alone = not (self.num_top_tokens or self.readers or self.stages_in_target)
        self.guesses = self._beside.guesses

    def around(self, drafter: Drafter) -> "GrammarDrafter":
        return GrammarDrafter(self._constraint, drafter)

    def replaced_by(self, drafter: Drafter) -> "GrammarDrafter":
        return self.around(drafter)

    def num_certain(self, most: int) -> int:
        return len(self._constraint.forced_run(most))

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        self._told = ()
        self._beside.start(prompt, sampling, key)

    def propose(self, root: int, budget: int) -> Draft:
        """Return the forced run and a draft below it, at most `budget` nodes in all."""
        run = self._constraint.forced_run(budget)
        if not run and not self._constraint.has_grammar:
            return self._beside.propose(root, budget)
        left = budget - len(run)
        if not left:
            return Draft.empty(root).below(root, run, FORCED)
        cursor = self._beside.cursor(root)
        if cursor is not None:
            return self._grown(root, run, left, _along(cursor, run))
        if run and self._needs_text_alone:
            for before, token in zip((root, *run), run, strict=False):
                self._beside.update(Round((before,), (-1,), (0,), token))
            self._told = run
        end = (root, *run)[-1]
        draft = self._beside.propose(end if self._told else root, left if self._told else budget)
        if draft.sampled_from is None:
            cursor = read_draft(self._beside.name, draft)
            return self._grown(root, run, left, _along(cursor, () if self._told else run))
        if run and not self._told:
            return Draft.empty(root).below(root, run, FORCED)
        return draft.below(root, run, FORCED)

    def update(self, round: Round) -> None:
        told, self._told = len(self._told), ()
        if told and len(round.path) > told:
            round = _from_node(round, told)
        elif told:  # the reply ended inside the run, all of which the drafter has read
            return
        self._beside.update(round)

    def _grown(self, root: int, run: Path, most: int, cursor: Cursor) -> Draft:
        end = (root, *run)[-1]
        grown = grow(end, GrammarCursor(cursor, self._constraint, run), most, self.limits)
        return grown.below(root, run, FORCED)


@dataclass(slots=True)
class GrammarCursor:
    """A node of another drafter's tree under the grammar.

    Forbidden tokens are left out, forced ones are certain. If few tokens are allowed, all are
    proposed: a choice between two is worth a draft of both, because the tokens that the grammar
    forces after each cost nothing.
    """

    inner: Cursor  # of the other drafter
    constraint: Constraint
    path: Path  # tokens after the last emitted one
    guessed: Iterable[int] = ()  # what the other drafter proposes here; `next_probs` sets it

    def next_probs(self) -> Mapping[int, float]:
        after = self.constraint.allowed(self.path)
        if after is None or after.is_complete:
            return {}
        if after.forced is not None:
            return {after.forced: 1.0}
        probs = self.inner.next_probs()
        kept = {token: prob for token, prob in probs.items() if after.has(token)}
        self.guessed = kept.keys()
        lost = sum(probs.values()) - sum(kept.values())
        scale = 1 / max(1 - lost, 1e-2)  # the forbidden share goes to the others
        kept = {token: min(prob * scale, 0.999) for token, prob in kept.items()}
        if after.count > _FEW:
            return kept
        others = [token for token in after.tokens() if token not in kept]
        rest = max(1 - sum(kept.values()), 0.0)
        return {**kept, **{token: rest / len(others) for token in others}}

    def source_of(self, token: int) -> str:
        if token in self.guessed:
            return self.inner.source_of(token)
        after = self.constraint.allowed(self.path)
        return FORCED if after and after.forced is not None else GRAMMAR

    def child(self, token: int) -> "GrammarCursor":
        return GrammarCursor(self.inner.child(token), self.constraint, (*self.path, token))


def _along(cursor: Cursor, path: Path) -> Cursor:
    for token in path:
        cursor = cursor.child(token)
    return cursor


def _from_node(round: Round, node: int) -> Round:
    """Return a round whose root is the last node of its forced run."""
    return replace(
        round,
        tokens=round.tokens[node:],
        parents=[-1, *[parent - node for parent in round.parents[node + 1 :]]],
        path=[index - node for index in round.path[node:]],
        target_probs=round.target_probs[node:],
        draft_probs=round.draft_probs and round.draft_probs[node:],
        sources=round.sources[node:],
        num_certain=0,
    )
