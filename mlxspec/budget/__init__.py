"""How many draft nodes to verify: the number that is expected to give the most tokens/s.

A round of n draft nodes is expected to emit 1 + Phi(n) tokens: Phi(n) is the sum of the nodes'
acceptance probabilities. It takes the time of drafting and of a forward of 1 + n rows. Every round
uses the n that maximises the quotient; n can be 0. The cost curve rises in steps and may even fall,
so all n are compared and the search never stops early. For a convex cost the first maximum would
be enough (Sequoia, Chen et al. 2024, https://arxiv.org/abs/2402.12374).

A budget cannot change the output distribution. The number n depends on earlier rounds, on clocks
and on probabilities of the drafter, never on a sample that is not verified yet.
"""

from mlxspec.budget.budget import Budget, FixedBudget, MeasuredBudget, best_count
from mlxspec.budget.curve import CostBook, CostCurve
