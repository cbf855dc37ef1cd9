"""Exact decoding: forwards in which a row is computed to the same bits, drafted or not.

A forward of n rows rounds otherwise than one of one row, so near-ties fall otherwise. But kernels
compute a row alike for some numbers of rows. Exact decoding has forwards of these *widths* only:
those of plain decoding are padded to the narrowest. A draft is a chain, so the keys of a row stand
in the same slots in both, and its forward ends where shapes change (`Cache.steady_rows`).
`loading/exactness.py` finds the widths.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mlxspec.kv.steady import Steady
from mlxspec.models import DraftSupport


def exact_support(support: DraftSupport) -> DraftSupport:
    """Return the drafts that exact decoding verifies with a model of some draft support."""
    return "chain" if support == "tree" else support


@dataclass(frozen=True)
class ExactForm:
    """The forwards of exact decoding on one device with one model.

    Attributes:
        rows: By width, ascending, the number of first rows that are computed as in plain decoding.
            The rows behind them are padding.
        pads_keys: Whether forwards read whole blocks of keys.
    """

    rows: Mapping[int, int]
    pads_keys: bool

    @property
    def steady(self) -> Steady:
        """How the cache keeps the shapes of forwards."""
        return Steady(max(self.rows), self.pads_keys)

    @property
    def most_nodes(self) -> int:
        """The largest number of draft nodes, without the root."""
        return max(self.rows.values()) - 1

    @property
    def words(self) -> str:
        """The form for display."""
        if not self.most_nodes:
            return "forwards of one row, so nothing is drafted"
        widths = ", ".join(map(str, self.rows))
        return f"forwards of {widths} rows, for up to {self.most_nodes} draft tokens"

    def width(self, num_rows: int) -> int:
        """Return the narrowest width whose first `num_rows` rows are exact."""
        return next(width for width, exact in self.rows.items() if exact >= num_rows)
