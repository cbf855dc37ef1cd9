"""A cursor under a grammar: forbidden tokens are left out, forced ones are certain.

If few tokens are allowed, all are proposed: a choice between two tokens is worth a draft of both,
because the tokens that the grammar forces after each cost nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mlxspec.drafters.search.growth import Cursor
from mlxspec.grammar.constraint import Constraint, Path
from mlxspec.trace.stats import FORCED, GRAMMAR

_FEW = 4  # up to this many allowed tokens are all proposed


@dataclass(slots=True)
class GrammarCursor:
    """A node of another drafter's tree under the grammar.

    Attributes:
        inner: The cursor of the other drafter; None where it has none.
        path: Tokens after the last emitted one.
        guessed: The tokens that the other drafter proposes here; `next_probs` sets it.
    """

    inner: Cursor | None
    constraint: Constraint
    path: Path
    guessed: Iterable[int] = ()

    def next_probs(self) -> Mapping[int, float]:
        after = self.constraint.allowed(self.path)
        if after is None or after.is_complete:
            return {}
        if after.forced is not None:
            return {after.forced: 1.0}
        probs = self.inner.next_probs() if self.inner else {}
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
        if self.inner and token in self.guessed:
            return self.inner.source_of(token)
        after = self.constraint.allowed(self.path)
        return FORCED if after and after.forced is not None else GRAMMAR

    def child(self, token: int) -> "GrammarCursor":
        inner = self.inner and self.inner.child(token)
        return GrammarCursor(inner, self.constraint, (*self.path, token))
