"""What the engine asks of a budget, and the simplest budget: all nodes that are allowed."""

from collections.abc import Callable
from typing import Self

from mlxspec.budget.curve import CostCurve
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round

Measure = Callable[[], CostCurve]
"""Times forwards of the target; this takes a second or two."""


class Budget:
    """Decides how many nodes are drafted and verified in each round; by default all.

    With `looks_ahead`, the engine may start a plain round before it reads the token of the previous
    one from the device.
    """

    looks_ahead = False

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

        The engine calls it once per round. After a round without a draft, it may call it before
        `learn` gets that round.
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
