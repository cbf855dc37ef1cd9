"""How wide the trees of a round may be: as wide as promises the most tokens per second.

All trees take as many rows as the widest, so their width is chosen once for all, from what the
drafters think of their nodes, corrected by what came true, and from what forwards of so many rows
cost here.
"""

from collections.abc import Sequence

from mlxspec.budget.acceptance import PathRates
from mlxspec.budget.curve import CostCurve
from mlxspec.budget.measured import best_count
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round


class WidthChoice:
    """Cuts the drafts of a round to one width; learns what forwards cost and drafts are worth."""

    def __init__(self, curve: CostCurve | None) -> None:
        """Begin with what forwards cost; with None, nothing is ever cut."""
        self._curve = CostCurve(curve.ms) if curve else None  # a batch follows it on its own
        self._rates = PathRates()
        self._grown: Sequence[Draft] = ()  # before they were cut

    def cut(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Return what of the drafts is worth verifying.

        Drafts without probabilities known on the host are verified as they are, and so are those
        beside them.
        """
        self._grown = drafts
        is_drafted = [draft for draft in drafts if draft.tree.n_nodes > 1]
        if not self._curve or not is_drafted or any(d.path_probs is None for d in is_drafted):
            return list(drafts)
        own = [self._rates.gains(draft.path_probs or ()) for draft in drafts]
        counts = range(max(map(len, own)))
        gains = [sum(g[min(n, len(g) - 1)] for g in own) / len(drafts) for n in counts]
        ms = [self._curve.raw(len(drafts) * (1 + n)) for n in counts]
        best = best_count(gains, ms)
        return [draft if draft.path_probs is None else draft.first(best) for draft in drafts]

    def learn(self, rounds: Sequence[Round], ms: float) -> None:
        """Take note of the round that verified the drafts cut last, and its milliseconds."""
        grown, self._grown = self._grown, ()
        if not self._curve:
            return
        self._curve.observe(len(rounds) * max(len(round.tokens) for round in rounds), ms)
        for draft, round in zip(grown, rounds, strict=True):
            if draft.path_probs:
                self._rates.learn(draft, round)
