"""Earlier texts: continue a text of an earlier session where it agrees with the latest tokens.

The same question on another day, or a file that is written again with changes, repeats long runs of
an earlier text. An index of the hashes of all runs of eight tokens finds where the latest eight
stood; the longest match is continued token by token. Where another token follows, a short match
soon behind is enough to go on: a changed word does not end the copy. Each length of match has a hit
rate, learned from every verdict. It takes a thirtieth of the memory of a suffix automaton, which
finds shorter matches, too. (Retrieval as a drafter: REST, He et al. 2023,
https://arxiv.org/abs/2311.08252)
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mlxspec.drafters.search.calibration import HitRate

RUN = 8
"""Tokens that must agree: a copy of fewer is right too seldom to be drafted far."""

MOST_TOKENS = 500_000
"""Tokens of all texts together, 16 bytes each; the oldest are dropped first."""

_END = -1  # follows each text
_LONGEST = 64  # longer matches are not told apart
_NUM_COMPARED = 8  # the newest places with the same hash
_NEAR = 48  # places behind a copy that broke off, where a shorter match continues it
_SHORT = 3  # tokens of such a match
_LENGTH_BOUNDS = (4, 7, 11, 15, 23, 39)  # the longest match of each bin but the last
_RATES = (0.6, 0.8, 0.9, 0.94, 0.96, 0.97, 0.98)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class _Index:
    """Texts, each followed by `_END`, and where their runs are, ordered by hash."""

    tokens: NDArray[np.int32]
    hashes: NDArray[np.uint64]  # of the runs, ascending
    ends: NDArray[np.int32]  # per run, the place behind it; ascending where hashes are equal

    @staticmethod
    def of(tokens: NDArray[np.int32]) -> "_Index":
        hashes = _hashes(tokens)
        order = np.argsort(hashes, kind="stable")
        return _Index(tokens, hashes[order], (order + RUN).astype(np.int32))

    def longest(self, latest: NDArray[np.int32]) -> "Match | None":
        """Return `EarlierTexts.find` of at least a run."""
        [wanted] = _hashes(latest[-RUN:])
        first, end = (self.hashes.searchsorted(wanted, side) for side in ("left", "right"))
        best: Match | None = None
        for place in self.ends[max(first, end - _NUM_COMPARED) : end][::-1].tolist():
            before = self.tokens[max(0, place - len(latest)) : place]
            differ = np.flatnonzero(before[::-1] != latest[::-1][: len(before)])
            length = int(differ[0]) if len(differ) else len(before)
            if length >= RUN and (best is None or length > best.length):
                best = Match(self.tokens, place, length)
        return best


class Match(NamedTuple):
    """Where in a text the latest tokens stood: the place behind them, and how many they are."""

    text: NDArray[np.int32]
    place: int
    length: int

    @property
    def next_token(self) -> int | None:
        """The token that followed there; None at the end of the text."""
        token = int(self.text[self.place])
        return None if token == _END else token

    def after(self, token: int) -> "Match | None":
        """Return the match that is longer by a token; None if another one followed."""
        if token != self.next_token:
            return None
        return Match(self.text, self.place + 1, self.length + 1)

    def resumed(self, latest: Sequence[int]) -> "Match | None":
        """Return a short match soon behind this one, which another token has ended."""
        start = max(0, self.place - _SHORT)
        near = self.text[start : self.place + _NEAR]
        if len(near) <= _SHORT:
            return None
        runs = sliding_window_view(near[:-1], _SHORT)
        found = np.flatnonzero((runs == latest[-_SHORT:]).all(axis=1))
        return Match(self.text, start + int(found[0]) + _SHORT, _SHORT) if len(found) else None


class EarlierTexts:
    """Texts that drafters share; one thread may add some while others read."""

    def __init__(self, max_tokens: int = MOST_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._index = _Index.of(np.zeros(0, np.int32))

    def add(self, texts: Iterable[Sequence[int]]) -> None:
        """Add texts of token ids, the oldest first; beyond `max_tokens` the oldest are dropped."""
        rows = [np.array([*text, _END], np.int32) for text in texts]
        self._index = _Index.of(np.concatenate([self._index.tokens, *rows])[-self._max_tokens :])

    def find(self, latest: Collection[int]) -> Match | None:
        """Return the longest match of the end of a text, at least a run; the newest of equals."""
        tokens = np.fromiter(latest, np.int32)[-_LONGEST:]
        return self._index.longest(tokens) if len(tokens) >= RUN else None


class Copying:
    """Follows a growing text: where do its latest tokens stand in earlier texts?"""

    def __init__(self, texts: EarlierTexts) -> None:
        self.match: Match | None = None
        self._texts = texts
        self._rates = [HitRate(prior) for prior in _RATES]
        self._latest = deque[int](maxlen=_LONGEST)
        self._broken: Match | None = None  # the last match that another token ended
        self._age = 0  # tokens since then

    def start(self, tokens: Sequence[int]) -> None:
        """Begin after the tokens of a text."""
        self._latest.clear()
        self._latest.extend(tokens[-_LONGEST:])
        self.match, self._broken = self._texts.find(self._latest), None

    def append(self, token: int) -> None:
        self._latest.append(token)
        before, self.match = self.match, self.match.after(token) if self.match else None
        if self.match is not None:
            return
        if before is not None:
            self._broken, self._age = before, 0
        self._age += 1
        self.match = self._texts.find(self._latest)
        if self.match is None and self._broken is not None and self._age <= _NEAR:
            self.match = self._broken.resumed(list(self._latest))

    def learn(self, token: int) -> None:
        """Learn whether the present match told the next token."""
        if self.match is not None and self.match.next_token is not None:
            self._rate(self.match).record(token == self.match.next_token)

    def prob(self, match: Match) -> float:
        """Return the probability that the next token of a match is right."""
        return self._rate(match).value

    def _rate(self, match: Match) -> HitRate:
        return self._rates[bisect_left(_LENGTH_BOUNDS, match.length)]


def _hashes(tokens: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Return the hash of each run of `RUN` tokens, in their order."""
    count = max(0, len(tokens) - RUN + 1)
    hashes = np.zeros(count, np.uint64)
    for offset in range(RUN):
        hashes = hashes * _FACTOR + tokens[offset : offset + count].astype(np.uint64)
    return hashes
