"""Times drafters against plain decoding: interleaved laps, and the ratios within each lap.

A lap is one short reply per drafter, all to the same prompt. Plain decoding writes the first and
the last reply of a lap, and each speed of the lap is divided by the mean of these two. So a machine
that slows down meanwhile slows down both sides of a ratio. The difference between the two plain
replies is noise, and it limits how far the ratios can be trusted. Each prompt is used once: a
drafter that learns from text would copy its own reply.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from mlxspec.measure.trial import PROMPTS, rotated

PLAIN = "none"
MIN_LAPS = 3  # with fewer, no median is safe from one outlier
_MAX_SECONDS = 15.0
_CLEARLY_SLOWER = 0.85  # of the fastest: a slower drafter leaves after its second lap
_CLEAR_LEAD = 1.1
_SPREADS = 3  # a lead of this number of spreads needs no further lap
_LEADING_LAPS = 0.75  # of all laps: a lead in fewer depends on prompts or on luck

RunTrial = Callable[[str, int, float], float]
"""Runs a trial, given a drafter's name, the index of a prompt and the maximum seconds; returns its
tokens/s. 0 ends the laps.
"""


@dataclass(frozen=True)
class Lap:
    """The tokens/s of one lap."""

    plain: tuple[float, float]  # of plain decoding, in its first and in its last reply
    speeds: Mapping[str, float]  # of the other drafters, by name

    @property
    def plain_tps(self) -> float:
        return sum(self.plain) / 2

    @property
    def ratios(self) -> dict[str, float]:
        """Speed-up over plain decoding, by drafter."""
        return {PLAIN: 1.0, **{name: tps / self.plain_tps for name, tps in self.speeds.items()}}

    @property
    def noise(self) -> float:
        """How much faster the faster reply of plain decoding is; 0.1 is 10 %."""
        return max(self.plain) / min(self.plain) - 1


@dataclass(frozen=True)
class Evidence:
    """The complete laps, and the figures that follow from them."""

    laps: Sequence[Lap] = ()

    @property
    def names(self) -> list[str]:
        """The drafters that took part in a lap, plain decoding first; none without a lap."""
        return [*self.laps[0].ratios] if self.laps else []

    @property
    def spread(self) -> float:
        """Median noise of the laps; 0.1 means that equal speeds differ by 10 % here."""
        return median(lap.noise for lap in self.laps) if self.laps else 0.0

    @property
    def ratios(self) -> dict[str, float]:
        """Median speed-up over plain decoding, by drafter."""
        return {name: round(median(self._ratios(name)), 3) for name in self.names}

    @property
    def speeds(self) -> dict[str, float]:
        """Tokens/s by drafter: the median speed-up, at the median speed of plain decoding."""
        if not self.laps:
            return {}
        plain = median(lap.plain_tps for lap in self.laps)
        return {name: round(plain * median(self._ratios(name)), 2) for name in self.names}

    def lead(self, name: str, other: str) -> float:
        """Return the ratio of one drafter's speed to another's: the median of their laps."""
        return median(self._leads(name, other))

    def is_reliable(self, name: str, other: str) -> bool:
        """Return whether a drafter is ahead of another one in nearly all of their laps."""
        leads = self._leads(name, other)
        return sum(lead > 1 for lead in leads) >= _LEADING_LAPS * len(leads)

    def _ratios(self, name: str) -> list[float]:
        return [lap.ratios[name] for lap in self.laps if name in lap.ratios]

    def _leads(self, name: str, other: str) -> list[float]:
        both = [lap.ratios for lap in self.laps if {name, other} <= lap.ratios.keys()]
        return [ratios[name] / ratios[other] for ratios in both]


def run_laps(
    names: Sequence[str],
    run: RunTrial,
    *,
    safe: str,
    max_seconds: float = _MAX_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Evidence:
    """Return the laps that time allows, until one drafter leads clearly.

    `names` are the drafters besides plain decoding. `safe` stays in all laps even if it is slow:
    the others have to beat it. No trial starts after `max_seconds`.
    """
    end = clock() + max_seconds
    racing, evidence = list(names), Evidence()
    for number in range(len(PROMPTS)):
        order = [PLAIN, *rotated(racing, number), PLAIN]
        lap = _run_lap(order, number, run, clock, end)
        if lap is None:
            break
        evidence = Evidence([*evidence.laps, lap])
        if len(evidence.laps) > 1:  # a drafter that noise cannot excuse leaves
            leader, noise = leader_of(evidence), 1 + evidence.spread
            racing = [
                name
                for name in racing
                if name == safe or evidence.lead(name, leader) * noise >= _CLEARLY_SLOWER
            ]
        if len(evidence.laps) >= MIN_LAPS and _is_clear(evidence, [PLAIN, *racing]):
            break
    return evidence


def _run_lap(
    order: Sequence[str], number: int, run: RunTrial, clock: Callable[[], float], end: float
) -> Lap | None:
    """Return the lap over a prompt, or None if the time ended within it."""
    speeds: list[float] = []
    laps_to_go = max(1, MIN_LAPS - number)
    for name in order:
        left = end - clock()
        if left <= 0:
            return None
        speed = run(name, number, left / (len(order) * laps_to_go - len(speeds)))
        if not speed:
            return None  # the laps were stopped, or the clock stood still
        speeds.append(speed)
    drafted = zip(order[1:-1], speeds[1:-1], strict=True)
    return Lap((speeds[0], speeds[-1]), dict(drafted))


def leader_of(evidence: Evidence) -> str:
    """Return the drafter with the largest median ratio, the first of equal ones."""
    ratios = evidence.ratios
    return max(ratios, key=ratios.__getitem__)


def _is_clear(evidence: Evidence, racing: Sequence[str]) -> bool:
    leader = leader_of(evidence)
    enough = max(_CLEAR_LEAD, 1 + _SPREADS * evidence.spread)
    others = [name for name in racing if name != leader]
    return all(
        evidence.lead(leader, other) > enough and evidence.is_reliable(leader, other)
        for other in others
    )
