"""How fast a reply was against plain decoding, told from its own rounds.

Speeds of two moments are not comparable: another program may have slowed down one of them. So each
plain round is compared with the drafted rounds next to it:

    d  d  d  P  d  d  d     P: a plain round; d: three drafted ones on each side

The ratio of their times hardly depends on the load and on the text, so replies of one target and
drafter share it. Which tokens were accepted is the reply's own. A round of n nodes takes about
1 + slope * n times as long as one of none; times are divided by that before they are compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log, sqrt
from statistics import fmean, median

_SIDE = 3  # drafted rounds on each side of a plain one
_REACH = 6  # rounds: farther away the load may be another one
_FEWEST = 3  # comparisons; fewer say nothing about their spread
_LATEST = 48  # comparisons that count
_STEPS = 200  # latest changes between neighbours that count
_JUMP = 0.8  # a larger change between neighbours comes from another program
_DISAGREE = 3.0  # standard errors between both sides: the load changed here
_OUTLIER = 2.5  # standard deviations
_MAD = 1.4826  # standard deviations of a normal law in a median absolute deviation
_LEAST_NOISE = 0.015
_BIAS = 0.01  # the cost is no exact line
_BUSY = 0.15  # comparisons that differ by more are those of a busy machine
_SURE = 2.5  # standard errors
_MOST_OFF = 0.05  # error of a ratio that is told


@dataclass(frozen=True)
class TimedRound:
    """What a round took.

    Attributes:
        num_nodes: Draft nodes; 0 in a plain round, -1 where a grammar forced all of them: plain
            decoding has that round too.
        num_tokens: Emitted tokens, each of which plain decoding needs a round for.
        ms: Milliseconds since the end of the previous round, more than 0.
    """

    num_nodes: int
    num_tokens: int
    ms: float


@dataclass(frozen=True)
class RoundCosts:
    """What the rounds of one or more replies tell about the cost of a draft."""

    ratios: tuple[float, ...] = ()  # logarithms of plain over drafted times, latest last
    steps: tuple[float, ...] = ()  # logarithmic changes between neighbours
    changes: tuple[float, float] = (0.0, 0.0)  # sums over neighbours: of ms * nodes, nodes * nodes
    nodes: tuple[int, int] = (0, 0)  # drafted nodes, and rounds with a draft

    @property
    def slope(self) -> float:
        """Cost of a node relative to a round without nodes."""
        product, square = self.changes
        relative = product / square if square else 0.0  # to a round of the mean size
        mean = self.nodes[0] / max(1, self.nodes[1])
        return max(0.0, relative) / max(0.1, 1 - relative * mean)

    @property
    def noise(self) -> float:
        """Standard deviation of the time of a round, as a share."""
        return max(_LEAST_NOISE, _MAD * median(self.steps) / sqrt(2)) if self.steps else 1.0

    def after(self, rounds: Sequence[TimedRound]) -> "RoundCosts":
        """Return the costs after a reply."""
        product, square = self.changes
        for one, other in pairwise(rounds):
            change = 2 * (other.ms - one.ms) / (other.ms + one.ms)
            if min(one.num_nodes, other.num_nodes) > 0 and abs(change) < _JUMP:
                more = other.num_nodes - one.num_nodes
                product, square = product + change * more, square + more * more
        drafted = [round.num_nodes for round in rounds if round.num_nodes > 0]
        nodes = self.nodes[0] + sum(drafted), self.nodes[1] + len(drafted)
        new = replace(self, changes=(product, square), nodes=nodes)
        slope = new.slope
        logs = [_log(round, slope) for round in rounds]
        steps = [abs(b - a) for a, b in pairwise(logs) if a is not None and b is not None]
        new = replace(new, steps=(*self.steps, *steps)[-_STEPS:])
        ratios = *self.ratios, *_compared(rounds, logs, new.noise)
        return replace(new, ratios=ratios[-_LATEST:])


@dataclass(frozen=True)
class Speedup:
    """The speed of a reply over that of plain decoding at the same time."""

    ratio: float
    error: float  # standard error of the ratio, as a share

    @property
    def is_sure(self) -> bool:
        """Whether its spread says that it is within 5 % of the true ratio."""
        return _SURE * self.error <= _MOST_OFF


def speedup(rounds: Sequence[TimedRound], costs: RoundCosts) -> Speedup | None:
    """Return the speed-up of a reply, given costs that include its own rounds.

    Returns None before enough rounds of both kinds were seen, and on a busy machine.
    """
    ratios, took = costs.ratios, sum(round.ms for round in rounds)
    if len(ratios) < _FEWEST or not any(round.num_nodes > 0 for round in rounds):
        return None
    middle = median(ratios)
    spread = sqrt(sum((ratio - middle) ** 2 for ratio in ratios) / (len(ratios) - 1))
    if spread > _BUSY:
        return None
    usual = _MAD * median(abs(ratio - middle) for ratio in ratios)
    most = _OUTLIER * max(usual, costs.noise)
    factor = exp(middle + fmean(max(-most, min(most, ratio - middle)) for ratio in ratios))
    slope = costs.slope
    plain = [_plain_ms(round, factor, slope) for round in rounds]
    whole = sum(plain)
    # Noise of a drafted round counts in both times, so only its larger share in one of them does.
    shares = (a / whole - round.ms / took for a, round in zip(plain, rounds, strict=True))
    own = costs.noise**2 * sum(share * share for share in shares)
    compared = max(spread, costs.noise * sqrt(1 + 1 / (2 * _SIDE))) ** 2 / len(ratios)
    return Speedup(whole / took, sqrt(own + compared + _BIAS**2))


def _plain_ms(round: TimedRound, factor: float, slope: float) -> float:
    """Return the milliseconds of plain decoding for the tokens of a round, under its load."""
    if round.num_nodes <= 0:
        return round.ms
    return factor * round.num_tokens * round.ms / (1 + slope * round.num_nodes)


def _log(round: TimedRound, slope: float) -> float | None:
    """Return the logarithm of a drafted round's time without its nodes; None for other rounds."""
    if round.num_nodes <= 0:
        return None
    return log(round.ms / (1 + slope * round.num_nodes))


def _compared(
    rounds: Sequence[TimedRound], logs: Sequence[float | None], noise: float
) -> Iterator[float]:
    """Yield the log ratio of each plain round to its neighbours, unless the load changed there."""
    plain = [index for index, round in enumerate(rounds) if not round.num_nodes]
    # A plain round after another one may be begun ahead, as all those of plain decoding are.
    for index in [b for a, b in pairwise(plain) if b == a + 1] or plain:
        round = rounds[index]
        near = logs[max(0, index - _REACH) : index], logs[index + 1 : index + 1 + _REACH]
        before = [each for each in reversed(near[0]) if each is not None][:_SIDE]
        after = [each for each in near[1] if each is not None][:_SIDE]
        if min(len(before), len(after)) < 2:
            continue
        gap = abs(fmean(before) - fmean(after))
        if gap <= _DISAGREE * noise * sqrt(1 / len(before) + 1 / len(after)):
            yield log(round.ms) - (fmean(before) + fmean(after)) / 2
