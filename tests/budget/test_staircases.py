"""The budget on the cost curves of Apple's chips, with drafts and acceptance as recorded."""

from collections import Counter
from functools import cache
from itertools import cycle, islice
from math import ceil
from statistics import mode

from mlxspec.budget import CostBook, CostCurve, MeasuredBudget
from mlxspec.budget.cost import STEPS
from mlxspec.device import chips
from mlxspec.drafts.round import Round
from tests.support.pairwise import each_value
from tests.support.recorded_drafts import NUM_DRAFT_TOKENS, Recorded, recorded

TILE = 32
MS = 20.0  # of one row


def readings(wide, limit, tile):
    """Costs by rows where only readings of the weights count, as MLX's kernels make them.

    Args:
        wide: Whether 5 rows share a reading; else each row has its own.
        limit: The rows from which on a tile of 32 is computed, at the cost `tile`.
    """
    few = {rows: ceil(rows / 5) if wide else rows for rows in range(1, limit)}
    return {rows: few.get(rows, tile) for rows in range(1, TILE + 1)}


def published(device, weights):
    curve = CostCurve(chips.chip_of(device).steps(weights).costs)
    return {rows: curve.raw(rows) for rows in range(1, TILE + 1)}


PER_ROW = {
    "M1, M2 affine, up to 2,048": readings(False, 14, 14.0),
    "M1, M2 affine, up to 4,096": readings(False, 10, 10.0),
    "M1, M2 affine": readings(False, 6, 6.0),
    "M1, M2 Ultra affine": readings(False, 12, 12.0),
}
STAIRCASES = PER_ROW | {
    "M1, M2 mxfp4": readings(True, 6, 3.0),
    "M3, M4": readings(True, 13, 4.0),
    "M3, M4, up to 4,096": readings(True, 15, 4.0),
    "M5, up to 2,048": readings(True, 33, 0.0),
    "M5, up to 4,096": readings(True, 25, 5.0),
    "M5": readings(True, 13, 3.5),
    "Ultra": readings(True, 12, 3.4),
    "M2 mxfp4, published": published("Apple M2", "mxfp4"),
    "M3, published": published("Apple M3 Max", "4-bit"),
    "M4, published": published("Apple M4 Pro", "4-bit"),
    "M3 Ultra, published": published("Apple M3 Ultra", "4-bit"),
    "M3 bfloat16, published": published("Apple M3", "bfloat16"),
    "M5, published": published("Apple M5 Max", "4-bit"),
}
RECORDED = recorded()


def play(rounds, cost, budget=None, width=1, *, is_lazy=False):
    """Tokens per cost of a row over some rounds, and the rows of each.

    Args:
        budget: None for `width` rows in every round that has as many.
        is_lazy: Whether the device drafts, so that nobody knows the probabilities of its nodes.
    """
    total, tokens, widths = 0.0, 0, []
    if budget is not None:
        budget.begin("pool", 0.0, 0, None)
    for whole in rounds:
        num_allowed = budget.ask(NUM_DRAFT_TOKENS) if budget else width - 1
        draft = whole.draft(num_allowed, is_lazy=is_lazy)
        draft = budget.cut(draft) if budget and num_allowed else draft
        rows = budget.rows(draft.tree.n_nodes) if budget else draft.tree.n_nodes
        path, bonus = whole.verified(draft)
        if budget:
            facts = {"num_allowed": num_allowed, "num_rows": rows, "target_ms": MS * cost[rows]}
            budget.learn(Round(*draft.tree.lists(), path, bonus, **facts))
        total, tokens = total + cost[rows], tokens + len(path)
        widths.append(rows)
    return tokens / total, widths


def measured(cost):
    costs = CostBook()
    costs.add(0, CostCurve({rows: MS * cost[rows] for rows in STEPS}))
    return MeasuredBudget(costs)


@cache
def best_fixed(staircase, text):
    rounds, cost = RECORDED[text], STAIRCASES[staircase]
    return max(play(rounds, cost, width=width)[0] for width in range(1, TILE + 1))


def many(text):
    return [*islice(cycle(RECORDED[text]), 1200)]


DRAFTED = [(text, False) for text in RECORDED]
DRAFTED += [(text, True) for text in RECORDED if text != "copy"]  # no drafter of a device copies


@each_value(staircase=STAIRCASES, drafted=DRAFTED)
def test_a_budget_loses_at_most_3_percent_against_the_best_fixed_width(staircase, drafted):
    (text, is_lazy), cost = drafted, STAIRCASES[staircase]
    speed, _ = play(many(text), cost, measured(cost), is_lazy=is_lazy)
    assert speed >= 0.97 * best_fixed(staircase, text)


@each_value(staircase=PER_ROW, text=RECORDED)
def test_where_each_row_costs_a_reading_only_long_copies_are_drafted(staircase, text):
    cost = PER_ROW[staircase]
    _, widths = play(many(text), cost, measured(cost))
    few = [rows for rows in widths if 1 < rows < 15]
    long = [rows for rows in widths if rows >= 20]
    assert len(few) <= 0.03 * len(widths)  # probes
    assert len(long) >= 0.7 * (len(widths) - widths.count(1) - len(few))
    assert widths.count(1) >= 0.8 * len(widths)


def test_a_long_copy_among_other_text_is_drafted_whole():
    cost = PER_ROW["M1, M2 affine"]
    chain = [0.99**depth for depth in range(1, NUM_DRAFT_TOKENS + 1)]
    copied = Recorded([*range(-1, NUM_DRAFT_TOKENS)], chain, [*range(1, NUM_DRAFT_TOKENS + 1)])
    rounds = [copied if n % 20 == 10 else other for n, other in enumerate(many("sampled"))]
    speed, widths = play(rounds, cost, measured(cost))
    assert min(widths[10::20]) >= 20
    assert speed > 1.9  # (19 + 32) tokens at the cost of 19 + 6


@each_value(staircase=["M1, M2 mxfp4", "M3, M4", "M5", "Ultra"], text=["prose", "sampled", "code"])
def test_rows_that_share_a_reading_are_drafted_together(staircase, text):
    cost = STAIRCASES[staircase]
    _, widths = play(many(text), cost, measured(cost))
    assert mode(widths) == 5


@each_value(drafted=DRAFTED)
def test_on_m3_and_m4_drafts_fill_one_reading_of_the_weights_or_two(drafted):
    (text, is_lazy), cost = drafted, STAIRCASES["M3, M4"]
    _, widths = play(many(text), cost, measured(cost), is_lazy=is_lazy)
    counts = Counter(widths)
    one, two = counts[4] + counts[5], counts[8] + counts[9] + counts[10]
    fewer, whole_tile = counts[1] + counts[2] + counts[3], counts[TILE]
    assert one >= (0.9 if text != "copy" else 0.8) * len(widths)
    assert two > 0
    assert one + two + fewer + whole_tile >= len(widths) - 3


def test_on_m1_and_m2_copies_are_drafted_in_a_whole_tile():
    cost = PER_ROW["M1, M2 affine"]
    speed, widths = play(many("copy"), cost, measured(cost))
    drafted = Counter(rows for rows in widths if rows > 1)
    assert drafted.most_common(1)[0][0] >= 20
    assert speed > 1.2 * best_fixed("M1, M2 affine", "copy")


@each_value(device=["Apple M1", "Apple M3", "Apple M4", "Apple M5"], text=["prose", "code"])
def test_before_anything_is_measured_the_costs_of_the_chip_are_nearly_as_good(device, text):
    rounds, cost = RECORDED[text][:60], published(device, "4-bit")
    costs = CostBook(chips.chip_of(device).steps("4-bit").costs)
    speed, _ = play(rounds, cost, MeasuredBudget(costs))
    unknown, _ = play(rounds, cost, MeasuredBudget())  # all nodes in every round
    assert speed > 0.9 * play(rounds, cost, measured(cost))[0]
    assert speed > max(0.9, 1.2 * unknown)
