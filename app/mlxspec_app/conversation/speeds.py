"""The speed of replies against plain decoding, and whether drafts cost time in a session.

The ratio of a reply comes from its own rounds (`mlxspec.trace.speedup`). A recording of an earlier
version has a ratio of its own, or the milliseconds of a plain forward.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from mlxspec.trace.events import GenerationStarted, PlainDecoded
from mlxspec.trace.speedup import RoundCosts, TimedRound
from mlxspec.trace.speedup import speedup as paired
from mlxspec.trace.stats import FORCED
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Round

_GROWTH = 2  # context lengths that differ by less than this factor share the costs of a draft
_FLAT = 512  # tokens: below, the weights cost nearly all of the time of a forward
_AGREE = 3  # latest replies that have to be slow before drafts are called so
_SLOW = 0.95
_LEAST_MS = 1e-6  # a trace may hold impossible times
_OFTEN = 1.05  # growth of a reply after which its ratio is computed again


@dataclass(frozen=True)
class Speeds:
    """What the replies of a session with one target and drafter tell of the speed of drafts."""

    costs: RoundCosts = field(default_factory=RoundCosts)
    context: int = 0  # tokens in the cache after the last of them
    recent: tuple[float, ...] = ()  # ratios of the latest that count, none of a busy moment
    slow_reply: int | None = None  # number of the reply that made it several slow ones
    models: tuple[str, ...] = ()  # what wrote them

    def of(self, started: GenerationStarted) -> "Speeds":
        """Return what is valid for a reply that starts: nothing of another target or drafter."""
        models = started.target, started.weights, started.drafter
        return self if models == self.models else Speeds(models=models)

    def costs_at(self, context: int) -> RoundCosts:
        """Return the costs that are valid for a reply at a context."""
        near, far = sorted((max(_FLAT, context), max(_FLAT, self.context)))
        return self.costs if far < _GROWTH * near else RoundCosts()

    def after(self, reply: Reply, context: int) -> "Speeds":
        gain, recent = speedup(reply), self.recent
        if gain is not None and not (reply.is_copy or reply.is_loop):
            recent = (*recent, gain)[-_AGREE:]
        is_slow = len(recent) == _AGREE and max(recent) < _SLOW
        slow = reply.number if is_slow and self.slow_reply is None else self.slow_reply
        return Speeds(reply.earlier.after(reply.timed), context, recent, slow, self.models)

    def slowdown(self, reply: Reply | None) -> float | None:
        """Return the share of its speed that drafts cost here, once a session; else None."""
        if reply is None or reply.number != self.slow_reply:
            return None
        return 1 - median(self.recent)


def timed(round_: Round, ms: float) -> TimedRound:
    """Return what a round took; tokens that a grammar forced cost plain decoding nothing."""
    nodes, verdict = round_.nodes, round_.verdict
    num_nodes = len(nodes) if any(node.source != FORCED for node in nodes) else -1
    if isinstance(verdict, PlainDecoded):
        num_nodes = 0
    num_tokens = sum(token.kind != "forced" for token in verdict.emit)
    return TimedRound(num_nodes, num_tokens, max(_LEAST_MS, ms))


def speedup(reply: Reply) -> float | None:
    """Return the speed-up over plain decoding; None without drafts or a sure figure."""
    if reply.measured is not None:
        return reply.measured.speedup
    if reply.cost is not None:
        return reply.stats.generation_tps / reply.cost.plain_tps if reply.stats.rounds else None
    before, gain = reply.told
    if len(reply.timed) > before * (1 if reply.is_finished else _OFTEN):
        # Where a reply is long enough, nothing of another one counts.
        costs = (costs.after(reply.timed) for costs in (RoundCosts(), reply.earlier))
        told = (paired(reply.timed, cost) for cost in costs)
        gain = next((found.ratio for found in told if found is not None and found.is_sure), None)
        reply.told = len(reply.timed), gain
    return gain


def plain_tps(reply: Reply) -> float:
    """Return the tokens/s of plain decoding while a reply was written; 0 if unknown."""
    gain = speedup(reply)
    return reply.stats.generation_tps / gain if gain is not None and gain > 0 else 0.0


def counted(replies: Iterable[Reply]) -> list[Reply]:
    """Return the replies that count for an average: no copies and no loops, unless all are."""
    found = list(replies)
    return [reply for reply in found if not (reply.is_copy or reply.is_loop)] or found
