"""Decides when to measure the cost curve, and compares each reply with plain decoding.

A longer context makes every forward slower, so a measurement is valid for similar contexts only.
Other programs change the load of the machine, so it is valid for some minutes.
"""

import time
from collections.abc import Callable, Mapping

from mlxspec.trace.events import (
    CostMeasured,
    DraftVerified,
    Event,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    SpeedupMeasured,
    TokensKept,
)
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.baseline import PlainCosts, are_similar, comparison, plain_speed
from mlxspec_app.conversation.figures import GREEDY
from mlxspec_app.conversation.messages import EarlierReplies, is_copy

_VALID_S = 600.0


class CostMeter:
    """Follows the replies of one model."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Start without a measurement; `clock` returns seconds."""
        self._clock = clock
        self._costs = PlainCosts()
        self._earlier = EarlierReplies()
        self._stats = GenerationStats()
        self._tokens: list[int] = []
        self._context = 0
        self._tried: dict[int, float] = {}  # time of the last attempt, by tokens in the cache
        self._ended: tuple[float, float] | None = None  # end of the last reply: its `ts`, the clock
        self._is_compared = True
        self._is_copy = self._is_sampled = False
        self._reason: FinishReason = "stop"

    def forget_replies(self) -> None:
        """Forget the replies so far, because another drafter has not seen them."""
        self._earlier = EarlierReplies()

    def record(self, event: Event) -> None:
        self._stats.add(event)
        match event:
            case GenerationStarted():
                self._tokens, self._is_compared = [], True
                self._is_sampled = event.lossless != GREEDY
            case TokensKept():
                self._tokens += [token.token for token in event.emit]
            case DraftVerified() | PlainDecoded():
                self._tokens += [token.token for token in event.emit]
                self._context = event.context
            case GenerationFinished():
                self._ended = (event.ts, self._clock())
                self._is_compared, self._reason = False, event.reason
            case GenerationFailed():
                self._is_compared = True

    @property
    def counts(self) -> bool:
        """Whether the last reply's speed predicts that of new ones: no copy, no loop."""
        return not self._is_copy and self._reason != "repeating"

    @property
    def is_sampled(self) -> bool:
        """Whether the last reply was sampled; False if it was greedy."""
        return self._is_sampled

    @property
    def is_due(self) -> bool:
        """Whether no measurement is valid for the present context length and time."""
        now = self._context
        if self._ended is None or not now:
            return False
        valid_from = self._clock() - _VALID_S
        return not any(
            at > valid_from and are_similar(context, now) for context, at in self._tried.items()
        )

    def note(self, ms: Mapping[int, float]) -> CostMeasured:
        """Return a measurement as an event: milliseconds by number of rows, ascending from 1."""
        assert self._ended is not None, "nothing is measured before a reply"
        self.give_up()
        ts, ended = self._ended
        now = ts + self._clock() - ended
        event = CostMeasured(now, self._context, tuple(ms), tuple(ms.values()))
        self._costs = self._costs.after(event)
        return event

    def give_up(self) -> None:
        """Stop measuring until the context length has changed or some minutes have passed."""
        self._tried[self._context] = self._clock()

    def compare(self) -> SpeedupMeasured | None:
        """Return the speed-up of the last reply over plain decoding, once; None without one."""
        if self._is_compared:
            return None
        self._is_compared = True
        copied = self._earlier.num_copied(self._tokens, self._stats.kept_tokens)
        self._earlier = self._earlier.after(self._tokens)
        self._is_copy = is_copy(copied, self._stats.generated_tokens)
        return comparison(self._stats, plain_speed(self._costs, self._stats, self._context), copied)
