"""Chooses one width for the trees of a round: the one with the most expected tokens/s.

All trees are padded to the widest, so one width serves all. It follows from the path probabilities
of the drafts, corrected by the acceptance so far, and from the cost curve of forwards.
"""

from collections.abc import Sequence

from mlxspec.budget.acceptance import PathRates
from mlxspec.budget.budget import best_count
from mlxspec.budget.curve import CostCurve
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round


class WidthChoice:
    """Cuts the drafts of a round to one width; learns the costs of forwards and the acceptance."""

    def __init__(self, curve: CostCurve | None) -> None:
        """Start with a cost curve; with None, no draft is ever cut."""
        # A copy: forwards of a batch must not change the curve of single replies.
        self._curve = CostCurve(curve.ms) if curve else None
        self._rates = PathRates()
        self._grown: Sequence[Draft] = ()  # before they were cut

    def cut(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Return the drafts, cut to the width that is worth verifying.

        If the host lacks the path probabilities of one draft, all stay whole.
        """
        self._grown = drafts
        is_drafted = [draft for draft in drafts if draft.tree.n_nodes > 1]
        if not self._curve or not is_drafted or any(d.path_probs is None for d in is_drafted):
            return list(drafts)
        own = [self._rates.gains(draft.path_probs or (), draft.num_certain) for draft in drafts]
        counts = range(max(map(len, own)))
        gains = [sum(g[min(n, len(g) - 1)] for g in own) / len(drafts) for n in counts]
        ms = [self._curve.raw(len(drafts) * (1 + n)) for n in counts]
        best = best_count(gains, ms)
        return [
            draft if draft.path_probs is None else draft.first(max(best, draft.num_certain))
            for draft in drafts
        ]

    def learn(self, rounds: Sequence[Round | None], num_rows: int, ms: float) -> None:
        """Learn from the round that verified the last drafts, in `ms` milliseconds.

        A round is None if its sequence failed.
        """
        grown, self._grown = self._grown, ()
        if not self._curve:
            return
        self._curve.observe(num_rows, ms)
        for draft, round in zip(grown, rounds, strict=True):
            if draft.path_probs and round is not None:
                self._rates.learn(draft, round)
