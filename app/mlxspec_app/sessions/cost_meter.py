"""Decides when to measure the cost curve, and compares each reply with plain decoding.

A longer context makes every forward slower, so a measurement is valid for similar contexts only.
Other programs change the load of the machine, so it is valid for some minutes.
"""

import time
from collections.abc import Callable, Mapping

from mlxspec.trace.events import (
    CostMeasured,
    Event,
    GenerationFinished,
    GenerationStarted,
    SpeedupMeasured,
)
from mlxspec_app.conversation.baseline import are_similar, comparison
from mlxspec_app.conversation.figures import GREEDY
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.state import ChatState

_VALID_S = 600.0


class CostMeter:
    """Follows the replies of one model: a state of its own holds the last reply."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._state = ChatState()
        self._compared: Reply | None = None
        self._context = 0
        self._tried: dict[int, float] = {}  # time of the last attempt, by tokens in the cache
        self._ended: tuple[float, float] | None = None  # end of the last reply: its `ts`, the clock

    def forget_replies(self) -> None:
        """Forget the replies so far, because another drafter has not seen them."""
        self._state = ChatState(baseline=self._state.baseline)

    def record(self, event: Event) -> None:
        if isinstance(event, GenerationStarted):
            before = self._state
            self._state = ChatState(baseline=before.baseline, earlier=before.earlier)
        apply(self._state, event)
        if (last := self._state.last_round) is not None:
            self._context = last.verdict.context
        if isinstance(event, GenerationFinished):
            self._ended = (event.ts, self._clock())

    @property
    def counts(self) -> bool:
        """Whether the last reply's speed predicts that of new ones: no copy, no loop."""
        reply = self._state.reply
        return reply is None or not (reply.is_copy or reply.is_loop)

    @property
    def is_sampled(self) -> bool:
        started = self._state.reply.started if self._state.reply else None
        return started is not None and started.lossless != GREEDY

    @property
    def is_due(self) -> bool:
        """Whether no measurement is valid for the present context length and time."""
        if self._ended is None or not self._context:
            return False
        valid_from = self._clock() - _VALID_S
        return not any(
            at > valid_from and are_similar(context, self._context)
            for context, at in self._tried.items()
        )

    def note(self, ms: Mapping[int, float]) -> CostMeasured:
        """Return a measurement as an event: milliseconds by number of rows, ascending from 1."""
        assert self._ended is not None, "nothing is measured before a reply"
        self.give_up()
        ts, ended = self._ended
        now = ts + self._clock() - ended
        event = CostMeasured(now, self._context, tuple(ms), tuple(ms.values()))
        apply(self._state, event)
        return event

    def give_up(self) -> None:
        """Stop measuring until the context length has changed or some minutes have passed."""
        self._tried[self._context] = self._clock()

    def compare(self) -> SpeedupMeasured | None:
        """Return the speed-up of the last reply over plain decoding, once; None without one."""
        reply = self._state.reply
        if reply is None or reply is self._compared or reply.reason is None:
            return None
        self._compared = reply
        return comparison(reply)
