"""How wide the trees of a round may be: as wide as promises the most tokens per second.

All trees take as many rows as the widest, so their width is chosen once for all, from what the
drafters think of their nodes and from what forwards of so many rows cost here.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, zip_longest

from mlxspec.budget.best import best_count
from mlxspec.budget.staircase import Staircase
from mlxspec.draft import Draft


class WidthChoice:
    """Cuts the drafts of a round to one width, and follows what forwards cost."""

    def __init__(self, ms: Mapping[int, float] | None) -> None:
        """Begin with milliseconds by number of rows; with None, nothing is ever cut."""
        self._stairs = Staircase(ms) if ms else None

    def cut(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Return what of the drafts is worth verifying.

        Drafts without probabilities known on the host are verified as they are, and so are those
        beside them.
        """
        is_drafted = [draft for draft in drafts if draft.tree.n_nodes > 1]
        if not self._stairs or not is_drafted or any(d.path_probs is None for d in is_drafted):
            return list(drafts)
        probs = [draft.path_probs or () for draft in drafts]
        means = [sum(nodes) / len(drafts) for nodes in zip_longest(*probs, fillvalue=0.0)]
        gains = list(accumulate(means, initial=0.0))
        ms = [self._stairs.raw(len(drafts) * (1 + count)) for count in range(len(gains))]
        best = best_count(gains, ms)
        return [draft if draft.path_probs is None else draft.first(best) for draft in drafts]

    def learn(self, rows: int, ms: float) -> None:
        """Take note of a round: rows of all sequences, padding included, and milliseconds."""
        if self._stairs:
            self._stairs.observe(rows, ms)
