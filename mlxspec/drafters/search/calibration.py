"""Calibration: turn estimates of drafters into acceptance probabilities, online, by each verdict.

A drafter's probability is not the probability that the target accepts: the difference depends on
target, text and temperature, and a token of several drafters is accepted more often than a token of
one. A `HitRate` learns one such probability. A `Mixer` combines several estimates of one event: the
log-odds of the mixture are a weighted sum of theirs, and each verdict moves the weights by one step
of gradient descent on its log-loss, as in data compression (logistic mixing, Mahoney 2005,
https://cs.fit.edu/~mmahoney/compression/cs200516.pdf).
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from operator import mul

_DECAY = 0.99
_PRIOR_TRIES = 6.0
_LEARNING_RATE = 0.02
_MAX_LOG_ODDS = 6.0
_MIN_PROB = 1.0 / (1.0 + exp(_MAX_LOG_ODDS))


def log_odds(prob: float) -> float:
    """Return the log-odds of a probability, limited to -6 and 6."""
    if prob < _MIN_PROB:
        return -_MAX_LOG_ODDS
    if prob > 1.0 - _MIN_PROB:
        return _MAX_LOG_ODDS
    return log(prob / (1.0 - prob))


class HitRate:
    """The share of hits among tries, in which older tries have less weight.

    `value` is the share; it stays near its initial value while there are few tries.
    """

    __slots__ = ("_hits", "_tries", "value")

    def __init__(self, value: float) -> None:
        self.value = value
        self._hits = value * _PRIOR_TRIES
        self._tries = _PRIOR_TRIES

    def record(self, is_hit: bool) -> None:
        self._hits = self._hits * _DECAY + is_hit
        self._tries = self._tries * _DECAY + 1
        self.value = self._hits / self._tries


Sources = tuple[int, ...]
"""The indices of some sources."""


class Mixer:
    """Combines the estimates of several sources.

    Weights belong to the sources that estimate an event and to the speakers, the sources that
    estimate any event of its kind. A source with no estimate at all is weaker evidence against an
    event than one that estimates other events.
    """

    def __init__(self, priors: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Set initial weights: the weight of each estimate, and the bias.

        A row is for one speaker, for two, and so on; a pair in it for one source, for two, and so
        on; the last ones also apply to more.
        """
        self._priors = priors
        # One per source, then the bias.
        self._weights: dict[tuple[Sources, Sources], list[float]] = {}

    def prob(self, estimates: Mapping[int, float], speakers: Sources) -> float:
        """Return the probability of an event, given its log-odds by source, at least one."""
        weights = self._weights_for(tuple(estimates), speakers)
        mixed = sum(map(mul, weights, estimates.values()), weights[-1])
        return 1.0 / (1.0 + exp(-mixed))

    def learn(self, estimates: Mapping[int, float], speakers: Sources, happened: bool) -> None:
        weights = self._weights_for(tuple(estimates), speakers)
        rate = _LEARNING_RATE * (happened - self.prob(estimates, speakers))
        for index, estimate in enumerate(estimates.values()):
            weights[index] += rate * estimate
        weights[-1] += rate

    def _weights_for(self, sources: Sources, speakers: Sources) -> list[float]:
        weights = self._weights.get((sources, speakers))
        if weights is None:
            row = self._priors[min(len(speakers), len(self._priors)) - 1]
            weight, bias = row[min(len(sources), len(row)) - 1]
            weights = self._weights[sources, speakers] = [weight] * len(sources) + [bias]
        return weights
