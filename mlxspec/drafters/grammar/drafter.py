"""The drafter of a reply under a grammar: what is certain first, then the guesses of another one.

Where a grammar allows one token alone, the token is certain, and so is the run of such tokens. It
is the beginning of the tree, and the other drafter's guesses hang below its end, so it costs no
forward of its own. A guess that is a function of the past is cut by the grammar before the forward,
and its tree is grown anew with what is forced inside it. A drawn draft stays as it was drawn: to
drop a node for its token would change q. Below a run it is drawn from the end of the run, if the
drafter needs no more than the text; else the run is proposed alone.
"""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from mlxspec.drafters.base import (
    Drafter,
    WrappingDrafter,
    fresh_drafter,
    readers_of,
    stages_in_target,
)
from mlxspec.drafters.grammar.cursor import GrammarCursor
from mlxspec.drafters.search.draft_cursor import read_draft
from mlxspec.drafters.search.growth import Cursor, HostDrafter, grow
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.grammar.constraint import Constraint, Path
from mlxspec.params import SamplingParams
from mlxspec.target.decoder import Decoder
from mlxspec.trace.stats import FORCED, GRAMMAR


def constrained(drafter: Drafter, constraint: Constraint | None) -> Drafter:
    """Return a drafter for one reply under a grammar; `drafter` itself without one."""
    return drafter if constraint is None else GrammarDrafter(constraint, drafter)


class GrammarDrafter(WrappingDrafter):
    """Proposes what a grammar forces, and below it what another drafter proposes."""

    def __init__(self, constraint: Constraint, drafter: Drafter) -> None:
        """Begin before the first reply.

        Args:
            constraint: The grammar, and the text of the reply so far.
            drafter: Guesses where the grammar leaves a choice.
        """
        super().__init__(GRAMMAR, drafter)
        self._constraint = constraint
        self._told: Path = ()  # a run that the other drafter was told before its draft
        self._needs_text_alone = not (
            drafter.num_top_tokens or readers_of(drafter) or stages_in_target(drafter)
        )

    @property
    def guesses(self) -> bool:
        """Whether another drafter guesses where the grammar leaves a choice."""
        return self._beside.name != "none"

    def beside(self, drafter: Drafter) -> "GrammarDrafter":
        """Return a drafter of the same reply beside another drafter, which has been started."""
        return GrammarDrafter(self._constraint, drafter)

    def num_certain(self, most: int) -> int:
        """Return how many tokens follow for certain, `most` at most."""
        return len(self._constraint.forced_run(most))

    def fresh(self) -> "GrammarDrafter":
        return GrammarDrafter(self._constraint, fresh_drafter(self._beside))

    def fresh_for(self, target: Decoder) -> "GrammarDrafter":
        return GrammarDrafter(self._constraint, fresh_drafter(self._beside, target))

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        self._told = ()
        self._beside.start(prompt, sampling, key)

    def propose(self, root: int, budget: int) -> Draft:
        """Return the forced run, and below it at most `budget` nodes less the run."""
        run = self._constraint.forced_run(budget)
        left = budget - len(run)
        if not left:
            return Draft.empty(root).below(root, run, FORCED)
        if isinstance(self._beside, HostDrafter):
            return self._grown(root, run, left, self._beside.cursor(root))
        if run and self._needs_text_alone:
            for before, token in zip((root, *run), run, strict=False):
                self._beside.update(Round((before,), (-1,), (0,), token))
            self._told = run
        end = (root, *run)[-1]
        draft = self._beside.propose(end if self._told else root, left if self._told else budget)
        if draft.sampled_from is None:
            cursor: Cursor | None = read_draft(self._beside.name, draft)
            return self._grown(root, run, left, cursor, is_told=bool(self._told))
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

    def _grown(
        self, root: int, run: Path, most: int, cursor: Cursor | None, *, is_told: bool = False
    ) -> Draft:
        for token in () if is_told else run:
            cursor = cursor and cursor.child(token)
        end = (root, *run)[-1]
        grown = grow(end, GrammarCursor(cursor, self._constraint, run), most, self.limits)
        return grown.below(root, run, FORCED)


def _from_node(round: Round, node: int) -> Round:
    """Return a round as one whose root is the last node of its run."""
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
