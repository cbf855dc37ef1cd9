"""A reply's rounds as running totals: what its charts need, without a look at every round."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from mlxspec_app.conversation.rounds import Round

_SHORTEST_S = 1e-6  # a trace may hold times that no clock gives


@dataclass
class Pace:
    """How a reply went on, round by round.

    Attributes:
        ends: When each round was over, in seconds since the reply was asked for, never falling.
        totals: Tokens emitted by then.
        accepted: Per round with a draft, the drafted tokens that were kept.
    """

    ends: list[float] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    _rows: Counter[int] = field(default_factory=Counter)

    def add(self, round_: Round) -> None:
        """Count a round."""
        last_end, last_total = (self.ends[-1], self.totals[-1]) if self.ends else (0.0, 0)
        self.ends.append(max(last_end, round_.verdict.ts))
        self.totals.append(last_total + len(round_.verdict.emit))
        if round_.nodes:
            self.accepted.append(float(round_.accepted))
            self._rows[len(round_.nodes) + 1] += 1

    @property
    def rows_in_use(self) -> int | None:
        """Rows that a round with a draft usually verified, root included; None without one."""
        return int(median(self._rows.elements())) if self._rows else None

    def speeds(self, start: float, num_slices: int) -> list[float]:
        """Return the tokens per second in equal slices of the time from `start` on.

        A round's tokens are spread over the time it took, so no slice is empty for being short.
        """
        slice_s = (self.ends[-1] - start) / num_slices if self.ends else 0.0
        if slice_s < _SHORTEST_S:
            return []
        bounds = (start + place * slice_s for place in range(1, num_slices))
        totals = [0.0, *(self._total_at(bound, start) for bound in bounds), self.totals[-1]]
        return [(after - before) / slice_s for before, after in pairwise(totals)]

    def _total_at(self, time_s: float, start: float) -> float:
        """Return the tokens emitted by a time before the end."""
        place = bisect_right(self.ends, time_s)
        begun, before = (self.ends[place - 1], self.totals[place - 1]) if place else (start, 0)
        share = (time_s - begun) / max(_SHORTEST_S, self.ends[place] - begun)
        return before + max(0.0, min(1.0, share)) * (self.totals[place] - before)
