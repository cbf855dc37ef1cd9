"""Compares a reply with plain decoding at its context: the speed-up, and whether drafts cost time.

Plain decoding is not a second run but a figure: the tokens/s that forwards of one row would give,
as measured on this machine while it was idle. A longer context makes every forward slower, so
measurements are stored by context. Between two of them the milliseconds are interpolated, near one
of them they are used unchanged, and far from all of them there is no comparison.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mlxspec.trace.events import CostMeasured, SpeedupMeasured
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.messages import PlainSpeed, Reply

GROWTH = 2  # context lengths that differ by less than this factor share a measurement
_FLAT = 512  # tokens: below, the weights cost nearly all of the time of a forward
_SLOW_FOR_S = 5.0  # a few slow rounds are no reason to warn


@dataclass(frozen=True)
class PlainCosts:
    """The costs of plain forwards, by ascending context, at least a factor `GROWTH` apart."""

    points: tuple[CostMeasured, ...] = ()

    def after(self, point: CostMeasured) -> "PlainCosts":
        """Return the costs after a measurement, which replaces those at similar contexts."""
        others = (old for old in self.points if not are_similar(old.context, point.context))
        return PlainCosts(tuple(sorted((*others, point), key=lambda one: one.context)))

    def at(self, context: int) -> PlainSpeed | None:
        """Return the speed of plain decoding at a context, or None far from all measurements."""
        index = bisect_left([point.context for point in self.points], context)
        around = self.points[max(0, index - 1) : index + 1]
        if len(around) == 2:
            low, high = around
            share = (context - low.context) / (high.context - low.context)
            ms = low.ms[0] + share * (high.ms[0] - low.ms[0])
            return PlainSpeed(1e3 / ms, context, (low.context, high.context))
        if around and are_similar(max(_FLAT, around[0].context), max(_FLAT, context)):
            return PlainSpeed(around[0].plain_tps, context, (around[0].context,))
        return None


def are_similar(context: int, other: int) -> bool:
    """Whether a measurement at one context is valid at another."""
    return max(context, other) < GROWTH * max(1, min(context, other))


def plain_speed(costs: PlainCosts, stats: GenerationStats, context: int) -> PlainSpeed | None:
    """Return the speed of plain decoding for a reply that ends with `context` tokens in the cache.

    The cost is linear in the context, so that of the middle is the mean of all of them. The rows
    of a rotating cache are fewer than the tokens of a long reply.
    """
    return costs.at(max(context // 2, context - stats.generated_tokens // 2))


def speedup(reply: Reply) -> float | None:
    """Return the speed-up over plain decoding; None without drafts or a measurement."""
    if reply.measured is not None:
        return reply.measured.speedup
    if reply.plain is None or not reply.stats.rounds:
        return None
    return reply.stats.generation_tps / reply.plain.tps


def comparison(reply: Reply) -> SpeedupMeasured | None:
    """Return the comparison to store with a finished reply; None if there is nothing to store."""
    plain, copied = reply.plain, reply.num_copied
    if plain is None:
        return SpeedupMeasured(copied=copied) if copied else None
    return SpeedupMeasured(speedup(reply), plain.tps, plain.context, plain.measured_at, copied)


def compare(reply: Reply, event: SpeedupMeasured) -> None:
    """Set the final comparison of a reply with plain decoding."""
    reply.measured, reply.num_copied = event, event.copied
    if event.plain_tps > 0 and event.measured_at:
        reply.plain = PlainSpeed(event.plain_tps, event.context, event.measured_at)


def counted(replies: Iterable[Reply]) -> list[Reply]:
    """Return the replies that count for an average: no copies and no loops, unless all are."""
    found = list(replies)
    return [reply for reply in found if not (reply.is_copy or reply.is_loop)] or found


@dataclass(frozen=True)
class Baseline:
    """The speed of plain decoding in a session, and whether drafts fall short of it."""

    costs: PlainCosts = PlainCosts()
    cost: CostMeasured | None = None  # the last measurement
    slow_reply: int | None = None  # number of the reply of which the user is warned, once a session
    last_fast_s: float = 0.0  # when the running reply was last as fast as plain decoding

    def slowdown(self, reply: Reply | None) -> float | None:
        """Return the share of plain decoding's speed that a slow reply loses; None for others."""
        if reply is None or reply.number != self.slow_reply:
            return None
        gain = speedup(reply)
        return 1 - gain if gain is not None and gain < 1 else None

    def measured(self, cost: CostMeasured, reply: Reply | None, context: int) -> "Baseline":
        """Return the baseline after a measurement, which also applies to the reply before it."""
        new = replace(self, costs=self.costs.after(cost), cost=cost)
        if reply is not None:
            reply.cost = cost
            reply.plain = plain_speed(new.costs, reply.stats, context)
        return new

    def afresh(self) -> "Baseline":
        return Baseline(self.costs, self.cost)

    def before(self, reply: Reply) -> "Baseline":
        reply.cost = self.cost
        return replace(self, last_fast_s=0.0)

    def after_round(self, reply: Reply, context: int) -> "Baseline":
        """Return the baseline after another round of a reply, and compare the reply with it."""
        reply.plain = plain_speed(self.costs, reply.stats, context)
        gain, now = speedup(reply), reply.stats.total_s
        if gain is None or gain >= 1:
            return replace(self, last_fast_s=now)
        # both speeds leave the prefill out, so its time is not slow time
        slow_s = now - max(self.last_fast_s, reply.stats.prefill_s)
        is_first = self.slow_reply is None and slow_s >= _SLOW_FOR_S
        return replace(self, slow_reply=reply.number) if is_first else self
