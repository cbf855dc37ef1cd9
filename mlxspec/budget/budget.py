"""Budgets: the fixed one, and one that times forwards, learns acceptance, drafts where that pays.

If the drafter has its probabilities on the host, it grows its tree first, and the best first nodes
are verified. If the device drafts, the budget chooses the number of nodes in advance, from earlier
acceptance: nothing waits for the device, and no sample has an influence. If no draft pays, the
rounds are plain. Probes, of a drafter that did not pay and of stale widths, may cost 1 % of the
time. Where speeds are compared, plain rounds between drafted ones may cost another 2 %.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from mlxspec.budget.acceptance import IndexRates, PathRates
from mlxspec.budget.curve import CostBook, CostCurve, DraftCost, FittedCurve
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round

_EXPLORED = 0.01  # share of the time that probes may lose
_AT_FIRST = 2.0  # allowance for probes of a new budget, in plain rounds: its costs may be wrong
_MAX_SAVED_UP = 8.0  # limit of the allowance for probes, in plain rounds: no probe loses more
_COMPARED = 0.02  # share of the time that plain rounds for comparison may lose
_LEAST_LOSS = 0.1  # of such a round, in plain rounds: where drafts hardly pay it is rare, too
_APART = 6  # rounds with a draft between two plain ones that are compared with them
_KEPT = 0.98  # weight of earlier drafted rounds after each new one: a lucky one tells little
_RATE = 0.1  # weight of one round in a moving mean
_STOPPED = 50.0  # times the cost of a forward: the computer slept or the program was suspended
_PAUSE = 8  # replies until the costs of a busy machine are measured again: each would wait
_FIRST_ASKED = 4  # nodes of a draft until its cost is recorded


Measure = Callable[[], CostCurve]
"""Times forwards of the target; this takes a second or two."""


class Budget:
    """Decides how many nodes are drafted and verified in each round; by default all.

    With `looks_ahead`, the engine may start a plain round before it reads the token of the previous
    one from the device.
    """

    looks_ahead = False
    compares = False  # whether to add plain rounds, so that a reply shows its speed-up
    # Returns the width of the forward over a number of rows, where not every width is exact.
    fit: Callable[[int], int] | None = None

    def begin(
        self, drafter: str, temperature: float, context: int, measure: Measure | None
    ) -> None:
        """Start a reply after `context` tokens in the cache.

        The acceptance rate depends on drafter and temperature. `measure` is called if no costs are
        recorded for this context; it is None if measuring would take too long for a short reply.
        """

    def record(self, context: int, curve: CostCurve) -> None:
        """Record the costs of forwards after `context` tokens, measured outside a reply."""

    def recorded(self, context: int) -> CostCurve | None:
        """Return the costs of forwards after `context` tokens; None if none were measured."""
        return None

    def ask(self, limit: int) -> int:
        """Return how many nodes the drafter proposes in the next round, at most `limit`.

        After a round without a draft, the engine may call it before `learn` gets that round.
        """
        return limit

    def cut(self, draft: Draft) -> Draft:
        """Return the part of a draft that is worth verifying."""
        return draft

    def rows(self, n_nodes: int) -> int:
        """Return the number of rows that verify a tree of `n_nodes`; at least `n_nodes`."""
        return n_nodes

    def learn(self, round: Round) -> None:
        """Learn from a finished round."""

    def end(self) -> None:
        """End the reply."""

    def fresh(self) -> Self:
        """Return a new budget with the same recorded costs, for a second concurrent reply."""
        return self  # it has no state


class FixedBudget(Budget):
    """Drafts and verifies all nodes that are allowed, at any cost: for comparisons."""


@dataclass
class _Estimates:
    """Estimates for one drafter at one temperature."""

    is_grown: bool | None = None  # whether its drafts have path probabilities, once one was seen
    path_rates: PathRates = field(default_factory=PathRates)
    index_rates: IndexRates = field(default_factory=IndexRates)  # without path probabilities
    draft_cost: DraftCost = field(default_factory=DraftCost)  # of a draft on the device
    draft_ms: float = 0.0  # mean milliseconds of a draft on the host
    saved_ms: float = 0.0  # mean milliseconds that a draft saved per round
    drafted: tuple[float, float] = (0.0, 0.0)  # decayed sums of milliseconds, and of tokens


class MeasuredBudget(Budget):
    """Chooses the number of nodes that is expected to give the most tokens/s."""

    looks_ahead = True

    def __init__(
        self, costs: CostBook | None = None, keep: Callable[[CostBook], None] = lambda costs: None
    ) -> None:
        """Start with recorded costs; None measures them at the first reply.

        `keep` is called with the costs at the end of a reply, to store them.
        """
        self.costs = CostBook() if costs is None else costs
        self._keep = keep
        self._learned: dict[tuple[str, float], _Estimates] = {}
        self._now = _Estimates()
        self._curve: CostCurve | FittedCurve | None = None
        self._context = 0
        self._allowance = _AT_FIRST  # plain rounds that probes may lose
        self._earned = 0.0  # plain rounds that those for comparison may lose
        self._num_drafted = 0  # rounds with a draft since the last plain one
        self._is_compared = False  # whether the round that was asked for last is one for comparison
        self._pause = 0  # replies that do not measure costs
        self._was_stopped = False
        self._grown: Draft | None = None  # before it was cut

    def begin(
        self, drafter: str, temperature: float, context: int, measure: Measure | None
    ) -> None:
        key = drafter, round(temperature, 1)
        self._now = self._learned.setdefault(key, _Estimates())
        self._pause -= 1
        if measure and self._pause < 0 and self.costs.bucket(context) not in self.costs.curves:
            curve = measure()
            self.costs.add(context, curve)
            self._pause = 0 if curve.is_possible else _PAUSE
        self._go_to(context)
        self._grown, self._is_compared = None, False

    def record(self, context: int, curve: CostCurve) -> None:
        recorded = self.costs.measured(context)
        self.costs.add(context, CostCurve({**(recorded.ms if recorded else {}), **curve.ms}))

    def recorded(self, context: int) -> CostCurve | None:
        return self.costs.measured(context)

    def ask(self, limit: int) -> int:
        now, curve = self._now, self._curve
        if curve is None or not limit:
            return limit
        if self.compares and self._compares_next(now, curve):
            return 0
        if now.is_grown:
            return limit if self._affords(-now.saved_ms) else 0
        gains = now.index_rates.gains(limit)
        ms = [now.draft_cost.at(n) + curve.cost(1 + n) for n in range(limit + 1)]
        count = best_count(gains, ms)
        if not now.draft_cost.is_measured:
            # The first draft is always requested: only a draft can show its worth.
            return min(max(count, 1), _FIRST_ASKED)
        wider = min(2 * count + 1, limit) if count else 1 + best_count(gains[1:], ms[1:])
        return wider if self._affords(loss_of(wider, gains, ms, count)) else count

    def _compares_next(self, now: _Estimates, curve: CostCurve | FittedCurve) -> bool:
        """Pay for a plain round among drafted ones; return False if none is due.

        An engine that looks ahead asks again before that round is learned. Then a second one
        follows: it is begun ahead, as every round of plain decoding would be.
        """
        ms, tokens = now.drafted
        loss = max(_LEAST_LOSS, 1 - ms / tokens / curve.cost(1)) if tokens else 1.0
        is_due = self._num_drafted >= _APART and self._earned >= loss
        if not (is_due or self._is_compared):
            return False
        self._is_compared = not self._is_compared
        self._earned -= loss
        return True

    def cut(self, draft: Draft) -> Draft:
        now, probs, certain = self._now, draft.path_probs, draft.num_certain
        self._grown = None
        if certain == draft.tree.n_nodes - 1 > 0:
            return draft
        now.is_grown = probs is not None
        self._grown = draft
        if self._curve is None or not probs:
            return draft
        gains = now.path_rates.gains(probs[certain:])
        # Certain nodes are verified anyway, so a guess costs only what its row adds.
        known_ms, cost = now.draft_ms + self._curve.cost(1), self._curve.cost
        ms = [
            known_ms + max(cost(1 + certain + n) - cost(1 + certain), 0) for n in range(len(gains))
        ]
        count = best_count(gains, ms)
        losses = {
            width - 1 - certain: loss_of(width - 1 - certain, gains, ms, count)
            for width in self._curve.stale(certain + len(gains))
            if width > certain
        }
        if losses:  # probe: a width with a wrongly high cost is never used, so never corrected
            other = min(losses, key=losses.__getitem__)
            count = other if self._affords(losses[other]) else count
        return draft.first(certain + count)

    def rows(self, n_nodes: int) -> int:
        return self._curve.padded(n_nodes) if self._curve else n_nodes

    def learn(self, round: Round) -> None:
        curve, grown, self._grown = self._curve, self._grown, None
        if curve is None:
            return
        if self._is_usable(round, curve):
            if round.num_allowed <= round.num_certain:
                curve.observe(round.num_rows, round.target_ms)
            elif grown is not None and grown.path_probs is not None:
                self._learn_grown(grown, round, curve)
            else:
                self._learn_lazy(round, curve)
        took = (round.draft_ms + round.target_ms) / curve.cost(1)
        self._allowance = min(self._allowance + _EXPLORED * took, _MAX_SAVED_UP)
        self._earned = min(self._earned + _COMPARED * took, 1.0)
        self._count(round)
        self._go_to(self._context + len(round.path))

    def _count(self, round: Round) -> None:
        """Count the drafted rounds between plain ones, and what their tokens cost."""
        self._is_compared = False
        self._num_drafted = 0 if len(round.tokens) == 1 else self._num_drafted + 1
        if self._num_drafted:
            news = round.draft_ms + round.target_ms, len(round.path)
            ms, tokens = self._now.drafted
            self._now.drafted = ms * _KEPT + news[0], tokens * _KEPT + news[1]

    def _go_to(self, context: int) -> None:
        curve, self._context = self.costs.at(context), context
        self._curve = FittedCurve(curve, self.fit) if curve and self.fit else curve

    def end(self) -> None:
        self._keep(self.costs)

    def fresh(self) -> "MeasuredBudget":
        new = MeasuredBudget(self.costs, self._keep)
        new.compares = self.compares
        return new

    def _affords(self, loss_ms: float) -> bool:
        """Pay for a loss from the allowance for probes, if it suffices; a gain costs nothing."""
        assert self._curve is not None, "nothing is probed before a cost is known"
        loss = loss_ms / self._curve.cost(1)
        if loss > self._allowance:
            return False
        self._allowance -= max(loss, 0.0)
        return True

    def _is_usable(self, round: Round, curve: CostCurve | FittedCurve) -> bool:
        """Return False for a round in which the program was suspended; a second in a row counts."""
        was_stopped = self._was_stopped
        ms = round.draft_ms + round.target_ms
        self._was_stopped = ms > _STOPPED * curve.raw(round.num_rows)
        return was_stopped or not self._was_stopped

    def _learn_grown(self, grown: Draft, round: Round, curve: CostCurve | FittedCurve) -> None:
        now = self._now
        curve.observe(round.num_rows, round.target_ms)
        now.draft_ms += _RATE * (round.draft_ms - now.draft_ms)
        now.path_rates.learn(grown, round)
        certain = round.num_certain
        ms = now.draft_ms + curve.raw(round.num_rows) - curve.cost(1 + certain) + curve.cost(1)
        kept = len(round.path) - certain
        now.saved_ms += _RATE * (kept * curve.cost(1) - ms - now.saved_ms)

    def _learn_lazy(self, round: Round, curve: CostCurve | FittedCurve) -> None:
        now = self._now
        ms, forward_ms = round.draft_ms + round.target_ms, curve.raw(round.num_rows)
        if ms < forward_ms:  # draft and forward together took less than the forward's recorded cost
            curve.observe(round.num_rows, ms)
        certain = round.num_certain
        asked, path = round.num_allowed - certain, [node - certain for node in round.path]
        now.draft_cost.observe(asked, ms - forward_ms)
        now.index_rates.learn(asked, path)


def best_count(gains: Sequence[float], ms: Sequence[float]) -> int:
    """Return the n that maximises (1 + gains[n]) / ms[n]; the smallest of several.

    `gains[n]` is the expected number of accepted draft tokens if the first n nodes are verified;
    `gains[0]` is 0. `ms[n]` is the milliseconds of such a round, more than 0.
    """
    return max(range(len(gains)), key=lambda n: (1.0 + gains[n]) / ms[n])


def loss_of(count: int, gains: Sequence[float], ms: Sequence[float], best: int) -> float:
    """Return the milliseconds that a round of `count` nodes is expected to lose.

    The loss is relative to the same number of tokens at the pace of `best`; see `best_count`.
    """
    return ms[count] - (1.0 + gains[count]) * ms[best] / (1.0 + gains[best])
