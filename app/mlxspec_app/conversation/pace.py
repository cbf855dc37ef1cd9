"""Running totals of the rounds of a reply: its charts need no loop over all rounds."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from mlxspec_app.conversation.rounds import Round

_SHORTEST_S = 1e-6  # a trace may hold impossible times: avoid a division by 0


@dataclass
class Pace:
    """The progress of a reply, round by round.

    `ends` are the seconds from the request to the end of each round; they never fall. `totals` are
    the tokens emitted by then. `accepted` counts the accepted draft tokens of rounds with a draft.
    """

    ends: list[float] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    _rows: Counter[int] = field(default_factory=Counter)

    def add(self, round_: Round) -> None:
        last_end, last_total = (self.ends[-1], self.totals[-1]) if self.ends else (0.0, 0)
        # the times of a trace may fall, but `bisect_right` needs them in order
        self.ends.append(max(last_end, round_.verdict.ts))
        self.totals.append(last_total + len(round_.verdict.emit))
        if round_.nodes:
            self.accepted.append(float(round_.accepted))
            self._rows[len(round_.nodes) + 1] += 1

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
