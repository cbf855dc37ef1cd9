"""What the budget would choose on Apple's chips; `python -m tests.support.chip_table` prints it.

Between the widths that were published the cost curve interpolates as it does on any machine; beyond
them none is chosen.
"""

from itertools import accumulate, repeat
from operator import mul

from mlxspec.bench.mac import CURVES
from mlxspec.budget import CostBook, CostCurve, MeasuredBudget, best_count
from mlxspec.drafters.search.growth import grow

STEP = 0.1  # of a forward of one row: a draft model a tenth as large, per token


class Fan:
    """A cursor for a draft tree whose nodes all have the same few child probabilities."""

    def __init__(self, *probs):
        self.probs = probs

    def next_probs(self):
        return dict(enumerate(self.probs, 1))

    def source_of(self, token):
        return "fan"

    def child(self, token):
        return self


TEXTS = {
    "chain 60 %": Fan(0.6),
    "chain 80 %": Fan(0.8),
    "copy 98 %": Fan(0.98),
    "tree 50/15/8": Fan(0.5, 0.15, 0.08),
}


def chosen(ms_by_rows, cursor):
    """Rows that the budget verifies of a draft that costs nothing, and the speed-up expected."""
    costs = CostBook()
    curve = CostCurve(ms_by_rows)
    costs.add(0, curve)
    budget = MeasuredBudget(costs)
    budget.begin("fan", 0.0, 0, None)
    draft = budget.cut(grow(0, cursor, max(ms_by_rows) - 1))
    nodes = draft.tree.n_nodes - 1
    return nodes + 1, (1 + sum(draft.path_probs[:nodes])) / curve.cost(nodes + 1)


def chosen_chain(ms_by_rows, prob):
    """The same for a draft model whose every token costs time and is right with a probability."""
    curve, most = CostCurve(ms_by_rows), max(ms_by_rows) - 1
    gains = [0.0, *accumulate(accumulate(repeat(prob, most), mul))]
    ms = [STEP * n + curve.cost(1 + n) for n in range(most + 1)]
    n = best_count(gains, ms)
    return n + 1, (1 + gains[n]) / ms[n]


def table():
    """Rows and expected speed-up by chip and text."""
    return {
        chip: {name: chosen(curve, cursor) for name, cursor in TEXTS.items()}
        | {"draft model 80 %": chosen_chain(curve, 0.8)}
        for chip, curve in CURVES.items()
    }


if __name__ == "__main__":
    for chip, row in table().items():
        print(
            f"{chip:32}",
            *(f"{name}: {n} rows {up:.2f}x" for name, (n, up) in row.items()),
            sep="  ",
        )
