"""A reply against plain decoding: what it gained, and whether drafting falls short for long.

Plain decoding is a line, not another run: the tokens per second that forwards of one row would
give, as measured on this machine while it was idle. Without that measurement nothing is compared.
"""

from dataclasses import dataclass, replace

from mlxspec.trace.events import CostMeasured
from mlxspec_app.conversation.messages import Reply

_SLOW_FOR_S = 5.0


@dataclass(frozen=True)
class Baseline:
    """What is known of plain decoding in a session, and whether drafting falls short of it.

    Attributes:
        cost: What forwards of the target cost, as last measured.
        slowdown: Share of plain decoding's speed that the running reply lost for seconds on end;
            None unless it is to be told, which is once in a session.
        was_told: Whether it was.
        last_fast_s: When the running reply was last no slower, in seconds since its start.
    """

    cost: CostMeasured | None = None
    slowdown: float | None = None
    was_told: bool = False
    last_fast_s: float = 0.0

    def measured(self, cost: CostMeasured, reply: Reply | None) -> "Baseline":
        """Return what is known after a measurement, which holds for the reply before it too."""
        if reply is not None:
            reply.cost = cost
        return replace(self, cost=cost)

    def before(self, reply: Reply) -> "Baseline":
        """Return what is known before a reply, which is compared with it from now on."""
        reply.cost = self.cost
        return replace(self, slowdown=None, last_fast_s=0.0)

    def after_round(self, reply: Reply) -> "Baseline":
        """Return what is known after another round of a reply."""
        gain, now = speedup(reply), reply.stats.total_s
        if gain is None or gain >= 1:
            return replace(self, last_fast_s=now)
        slow_s = now - max(self.last_fast_s, reply.stats.prefill_s)
        if self.was_told or slow_s < _SLOW_FOR_S:
            return self
        return replace(self, slowdown=1 - gain, was_told=True)


def speedup(reply: Reply) -> float | None:
    """Return the speed of a reply in plain ones; None without drafts or without a measured line."""
    if reply.cost is None or not reply.stats.rounds:
        return None
    return reply.stats.generation_tps / reply.cost.plain_tps
