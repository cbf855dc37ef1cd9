"""What drafting costs where the device does it: a line through what rounds took beyond the forward.

A lazy draft is computed together with its verification, so only their sum can be timed. What is
above the known cost of the verification is the draft's: something for each round, something for
each node.
"""

_DECAY = 0.95


class DraftCost:
    """Milliseconds of a draft by the nodes asked for: a line, fitted with old rounds fading."""

    def __init__(self) -> None:
        # One imagined round without nodes or cost: it tells the slope while only one n is known.
        self._sums = (1.0, 0.0, 0.0, 0.0, 0.0)  # of 1, n, ms, n * n and n * ms
        self._num_rounds = 0

    @property
    def is_known(self) -> bool:
        """Whether any round was looked at."""
        return self._num_rounds > 1

    def observe(self, asked: int, ms: float) -> None:
        """Take note of a round; the first is passed over, for it compiles and loads."""
        self._num_rounds += 1
        if not self.is_known:
            return
        ms = max(ms, 0.0)
        news = (1.0, asked, ms, asked * asked, asked * ms)
        weight, *sums = (old * _DECAY + new for old, new in zip(self._sums, news, strict=True))
        self._sums = (weight, sums[0], sums[1], sums[2], sums[3])

    def at(self, asked: int) -> float:
        """Return the milliseconds of drafting so many nodes; 0 for none."""
        if not asked:
            return 0.0
        weight, x, y, xx, xy = self._sums
        spread = weight * xx - x * x
        slope = max((weight * xy - x * y) / spread, 0.0) if spread > 0 else 0.0
        start = max((y - slope * x) / weight, 0.0)
        return start + slope * asked
