"""Compares a reply with plain decoding: its speed-up, and whether drafts are slower for long.

Plain decoding is not another run but a figure: the tokens/s that forwards of one row would give, as
measured on this machine while it was idle. Without that measurement there is no comparison.
"""

from dataclasses import dataclass, replace

from mlxspec.trace.events import CostMeasured
from mlxspec_app.conversation.messages import Reply

_SLOW_FOR_S = 5.0  # a few slow rounds are no reason to warn


@dataclass(frozen=True)
class Baseline:
    """The speed of plain decoding in a session, and whether drafts fall short of it.

    Attributes:
        cost: The last measured cost curve of the target.
        slowdown: Share of plain decoding's speed that the running reply lost for some seconds;
            None unless the user is to be warned, which happens once in a session.
        was_warned: Whether the user was warned.
        last_fast_s: When the running reply was last as fast as plain decoding, in seconds since
            its start.
    """

    cost: CostMeasured | None = None
    slowdown: float | None = None
    was_warned: bool = False
    last_fast_s: float = 0.0

    def measured(self, cost: CostMeasured, reply: Reply | None) -> "Baseline":
        """Return the baseline after a measurement, which also holds for the reply before it."""
        if reply is not None:
            reply.cost = cost
        return replace(self, cost=cost)

    def before(self, reply: Reply) -> "Baseline":
        """Return the baseline for a new reply, which is compared with it from now on."""
        reply.cost = self.cost
        return replace(self, slowdown=None, last_fast_s=0.0)

    def after_round(self, reply: Reply) -> "Baseline":
        """Return the baseline after another round of a reply."""
        gain, now = speedup(reply), reply.stats.total_s
        if gain is None or gain >= 1:
            return replace(self, last_fast_s=now)
        # both speeds leave the prefill out, so its time is not slow time
        slow_s = now - max(self.last_fast_s, reply.stats.prefill_s)
        if self.was_warned or slow_s < _SLOW_FOR_S:
            return self
        return replace(self, slowdown=1 - gain, was_warned=True)


def speedup(reply: Reply) -> float | None:
    """Return the speed-up of a reply over plain decoding; None without drafts or measurement."""
    if reply.cost is None or not reply.stats.rounds:
        return None
    return reply.stats.generation_tps / reply.cost.plain_tps
