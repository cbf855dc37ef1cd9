"""What the engine asks of a budget, and the simplest one: as many nodes as are allowed."""

from collections.abc import Callable
from typing import Protocol

from mlxspec.budget.curve import CostCurve
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round

Measure = Callable[[], CostCurve]
"""Times forwards of the target, in a second or two."""


class Budget(Protocol):
    """Decides how many nodes are drafted and verified in each round.

    Attributes:
        looks_ahead: Whether the engine may start a plain round before the token of the one before
            is read.
    """

    looks_ahead: bool

    def begin(
        self, drafter: str, temperature: float, context: int, measure: Measure | None
    ) -> None:
        """Begin a reply.

        Args:
            drafter: Name of the drafter.
            temperature: Of the law: how often drafts are accepted depends on it.
            context: Tokens in the cache.
            measure: Called where nothing is known of the costs here; None where that would take
                too long for so short a reply.
        """

    def record(self, context: int, curve: CostCurve) -> None:
        """Take what forwards behind so long a text cost, as it was measured at leisure."""

    def known(self, context: int) -> CostCurve | None:
        """Return what forwards behind so long a text cost; None if nothing was measured."""

    def ask(self, limit: int) -> int:
        """Return how many nodes, `limit` at most, to ask of the drafter in the next round.

        Called once a round; where the drafter was left alone in the round before, perhaps before
        that one is learned.
        """

    def cut(self, draft: Draft) -> Draft:
        """Return what of a draft is worth verifying."""

    def rows(self, n_nodes: int) -> int:
        """Return the number of rows, `n_nodes` at least, that such a tree is verified with."""

    def learn(self, round: Round) -> None:
        """Take note of a finished round."""

    def end(self) -> None:
        """Take note that the reply is over."""

    def fresh(self) -> "Budget":
        """Return another one that knows the same costs, for a reply beside this one's."""


class FixedBudget:
    """Drafts and verifies as many nodes as are allowed, whatever that costs: for comparisons."""

    looks_ahead = False

    def begin(
        self, drafter: str, temperature: float, context: int, measure: Measure | None
    ) -> None:
        """Measure nothing."""

    def record(self, context: int, curve: CostCurve) -> None:
        """Need no costs."""

    def known(self, context: int) -> None:
        """Know none."""

    def ask(self, limit: int) -> int:
        return limit

    def cut(self, draft: Draft) -> Draft:
        return draft

    def rows(self, n_nodes: int) -> int:
        return n_nodes

    def learn(self, round: Round) -> None:
        """Learn nothing."""

    def end(self) -> None:
        """Keep nothing."""

    def fresh(self) -> "FixedBudget":
        return self  # it keeps nothing of a reply
