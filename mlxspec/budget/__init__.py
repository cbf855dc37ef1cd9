"""How many draft nodes to verify: the number that promises the most tokens per second.

A round of n draft nodes is expected to emit 1 + Phi(n) tokens, Phi(n) being the sum of the
probabilities that each node is accepted, and takes the time of drafting and of a forward of 1 + n
rows. Every round takes the n that maximises the quotient, zero included. What a forward costs is a
staircase that may even fall, so all n are compared and the search never stops early; for a convex
cost the first maximum would do (Sequoia, Chen et al. 2024, https://arxiv.org/abs/2402.12374).

Nothing here can bend the output law: n depends on the past, on clocks and on what a drafter says
without drawing, never on a sample that is still to be verified.
"""

from mlxspec.budget.base import Budget, FixedBudget
from mlxspec.budget.curve import CostBook, CostCurve
from mlxspec.budget.measured import MeasuredBudget, best_count

__all__ = [
    "Budget",
    "CostBook",
    "CostCurve",
    "FixedBudget",
    "MeasuredBudget",
    "best_count",
]
