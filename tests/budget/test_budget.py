"""The budget: the best number of nodes, the cost curve under it, and what it learns."""

import itertools
import random
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.budget import CostBook, CostCurve, FixedBudget, MeasuredBudget, best_count
from mlxspec.budget.acceptance import IndexRates, PathRates
from mlxspec.budget.curve import DraftCost
from mlxspec.decoder.exact import ExactForm
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from tests.support.pairwise import pairwise

EDGE = {1: 50.0, 2: 58.0, 4: 78.0, 8: 82.0, 12: 130.0, 16: 78.0, 24: 140.0, 32: 122.0}
LINEAR = {width: 50.0 * width for width in (1, 2, 4, 8, 16, 32)}
times = st.dictionaries(st.integers(2, 40), st.floats(1, 1e3), max_size=8).map(
    lambda ms: {1: 10.0, **ms}
)


def budget_of(ms):
    costs = CostBook()
    costs.add(0, CostCurve(ms))
    return MeasuredBudget(costs)


def begun(ms, drafter="d"):
    budget = budget_of(ms)
    budget.begin(drafter, 0.0, 0, None)
    return budget


def chain(prob, count):
    probs = [prob**depth for depth in range(1, count + 1)]
    tokens, parents = list(range(count + 1)), list(range(-1, count))
    return Draft.from_lists(tokens, parents, ["d"] * count, [prob] * count, probs)


# ---- the choice ------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 100)), min_size=1, max_size=40))
def test_the_best_number_is_that_of_trying_all(nodes):
    gains, total = [0.0], 0.0
    for prob, _ in nodes[1:]:
        total += prob
        gains.append(total)
    ms = [cost for _, cost in nodes]
    best, best_speed = 0, 0.0
    for n, (gain, cost) in enumerate(zip(gains, ms, strict=True)):
        if (1 + gain) / cost > best_speed:
            best, best_speed = n, (1 + gain) / cost
    assert best_count(gains, ms) == best


@pytest.mark.parametrize(
    ("prob", "rows", "ms"), [(0.98, 32, EDGE), (0.9, 16, EDGE), (0.1, 1, EDGE), (0.97, 1, LINEAR)]
)
def test_the_edges_of_the_cost_curve_are_seen(prob, rows, ms):
    """Twelve rows cost more than sixteen here, and each step up to eight promises too little."""
    assert begun(ms).cut(chain(prob, 31)).tree.n_nodes == rows


@given(times, st.floats(0.01, 0.999), st.integers(0, 20), st.integers(0, 40))
def test_no_more_nodes_than_there_are_and_no_more_than_allowed(ms, prob, count, limit):
    budget = begun(ms)
    assert 0 <= budget.ask(limit) <= limit
    cut = budget.cut(chain(prob, count))
    assert cut.tree.n_nodes <= count + 1
    assert len(cut.sources) == len(cut.path_probs) == cut.tree.n_nodes - 1


def test_where_every_forward_has_one_width_a_draft_fills_it():
    budget = budget_of(LINEAR)
    for fit, nodes in ((None, 0), (lambda rows: 8, 7)):
        budget.fit = fit
        budget.begin("d", 0.0, 0, None)
        assert budget.cut(chain(0.3, 7)).tree.n_nodes == 1 + nodes
    assert budget.rows(3) == 8
    budget.fit = lambda rows: 4 if rows <= 4 else 16  # twelve rows more for one guess
    budget.begin("d", 0.0, 0, None)
    assert budget.cut(chain(0.3, 7)).tree.n_nodes == 4


def test_a_round_counts_as_the_width_of_its_forward_where_not_all_of_its_rows_may_be_used():
    budget = budget_of(LINEAR)
    budget.fit = ExactForm({8: 7}, pads_keys=True).width
    budget.begin("d", 0.0, 0, None)
    budget.cut(chain(0.9, 6))
    budget.learn(round_of(3, 6, num_allowed=6, num_rows=8, draft_ms=0.1, target_ms=2.0))
    assert budget.rows(7) == 8


def test_a_fixed_budget_takes_what_is_allowed():
    draft = chain(0.1, 5)
    budget = FixedBudget()
    assert (budget.ask(7), budget.cut(draft), budget.rows(6)) == (7, draft, 6)


# ---- the cost curve --------------------------------------------------------------------------


@given(times, st.integers(1, 60))
def test_padding_is_to_no_fewer_rows_and_costs_no_more(ms, width):
    curve = CostCurve(ms)
    assert curve.padded(width) >= width
    assert curve.cost(width) <= curve.raw(width) * 1.1 + 1e-9
    assert curve.padded(1) == 1


def test_rows_are_padded_where_more_of_them_cost_less():
    curve = CostCurve(EDGE)
    assert [curve.padded(width) for width in (8, 12, 13, 24, 25)] == [16, 16, 16, 32, 32]
    linear = CostCurve(LINEAR)
    assert [linear.padded(width) for width in range(2, 15)] == list(range(2, 15))


def test_a_width_that_was_never_timed_lies_on_the_line_between_its_neighbours():
    curve = CostCurve({1: 10.0, 3: 20.0, 5: 30.0})
    assert [curve.raw(width) for width in (1, 2, 4, 5, 7)] == [10, 15, 25, 30, 40]
    single = CostCurve({1: 10.0})
    assert single.raw(2) < 15  # worth a try
    assert single.raw(8) == 80


def test_a_lasting_change_is_followed_and_one_odd_round_is_not():
    curve = CostCurve({1: 10.0, 4: 20.0})
    for _ in range(9):
        curve.observe(4, 20.0)
    curve.observe(4, 500.0)
    assert curve.ms[4] == pytest.approx(20.0)
    for _ in range(40):
        curve.observe(4, 30.0)
    assert curve.ms[4] == pytest.approx(30.0, rel=0.02)


def test_a_computer_that_falls_asleep_in_its_first_rounds_changes_little():
    curve = CostCurve({1: 10.0, 4: 20.0})
    for width in (1, 3, 4):
        curve.observe(width, 3_600_000.0)
    assert all(curve.ms[width] < 4 * 20.0 for width in (1, 3, 4))
    for _ in range(200):
        for width, ms in ((1, 10.0), (4, 20.0)):
            curve.observe(width, ms)
    assert curve.ms[3] < 2 * curve.ms[4]  # a width that real rounds had is known from then on


def test_of_an_assumed_curve_the_fastest_of_the_first_rounds_sets_the_milliseconds():
    curve = CostCurve({1: 1.0, 4: 1.5, 8: 3.0}, is_assumed=True)
    for width, ms in ((1, 900.0), (4, 31.0), (1, 20.0), (8, 75.0), (8, 60.0)):
        curve.observe(width, ms)
    assert curve.ms == pytest.approx({1: 20.0, 4: 30.0, 8: 60.0})
    for _ in range(60):  # from then on it is a curve like others
        curve.observe(8, 100.0)
    assert curve.ms[8] == pytest.approx(100.0, rel=0.02)
    assert curve.ms[8] > 3.5 * curve.ms[1]


@pytest.mark.parametrize("bad", [{}, {2: 1.0}, {1: 0.0}, {1: 1.0, 2: -1.0}])
def test_a_cost_curve_needs_the_time_of_one_row(bad):
    with pytest.raises(ValueError, match="and width 1; got"):
        CostCurve(bad)


def test_what_was_measured_is_kept_by_context():
    costs = CostBook()
    costs.add(100, CostCurve({1: 10.0, 2: 15.0}))
    costs.add(5000, CostCurve({1: 20.0}))
    again = CostBook()
    again.read(costs.as_dict())
    assert again.at(1000).ms == {1: 10.0, 2: 15.0}
    assert again.at(4096).ms == {1: 20.0}
    assert again.bucket(2000) not in again.curves
    assert again.at(1 << 20).ms == {1: 20.0}  # the nearest


def test_what_was_measured_at_leisure_takes_the_place_of_what_was_known():
    budget = begun({1: 10.0, 2: 90.0, 3: 30.0})
    budget.record(0, CostCurve({1: 20.0, 2: 21.0}))
    assert budget.costs.at(0).ms == {1: 20.0, 2: 21.0, 3: 30.0}


def test_costs_of_a_busy_machine_are_not_kept_and_are_measured_again():
    """Two rows cannot take less time than one."""
    budget, curves = MeasuredBudget(), iter([{1: 50.0, 2: 24.0, 4: 60.0}, EDGE])
    measured = []

    def measure():
        measured.append(next(curves))
        return CostCurve(measured[-1])

    for _ in range(9):
        budget.begin("d", 0.0, 0, measure)
        assert budget.costs.as_dict() == {}
        assert budget.costs.at(0).ratios == (1.0, 1.0, 1.2)
    assert len(measured) == 1
    budget.begin("d", 0.0, 0, measure)
    assert budget.costs.at(0).ms == EDGE
    restored = CostBook()
    restored.read({"0": {"1": 50.0, "2": 24.0}, "1": {"1": 50.0, "2": 58.0}})
    assert list(restored.curves) == [1]


# ---- what is learned -------------------------------------------------------------------------


def test_of_nodes_that_were_not_verified_the_children_of_those_that_were_tell_something():
    r"""0 - 1 - 3 - 5 with 2 below 0 and 4 below 1; node 1 was verified alone, and accepted.

    The text goes on with 7, 8: nodes 1 and 3. Nothing is observed of node 5.
    """
    rates = PathRates()
    seen = []
    rates._record = lambda prob, is_accepted: seen.append((prob, is_accepted))
    probs = [0.9, 0.8, 0.7, 0.6, 0.5]
    grown = Draft.from_lists([5, 7, 6, 8, 9, 7], [-1, 0, 0, 1, 1, 3], ["table"] * 5, None, probs)
    rates.learn(grown, Round([5, 7], [-1, 0], [0, 1], bonus_token=8))
    assert seen == [(0.9, True), (0.8, False), (0.7, True), (0.6, False)]


def test_path_probabilities_that_promise_too_much_are_corrected():
    rates, grown = PathRates(), chain(0.6, 1)
    for number in range(400):
        bonus = 1 if number % 5 == 0 else 2
        rates.learn(grown, Round([0], [-1], [0], bonus))
    assert rates.gains([0.6])[1] == pytest.approx(0.2, abs=0.08)
    assert rates.gains([0.97])[1] == pytest.approx(0.97)


def test_indices_are_counted_as_rounds_accept_them():
    rates = IndexRates()
    for number in range(400):
        rates.learn(3, [0, 1, 2] if number % 2 else [0])
    first, second, third = (b - a for a, b in zip(rates.gains(3), rates.gains(3)[1:], strict=False))
    assert (first, second) == (pytest.approx(0.5, abs=0.06), pytest.approx(0.5, abs=0.06))
    assert third < 0.05


def test_the_cost_of_drafting_is_a_line_of_the_nodes():
    cost = DraftCost()
    assert cost.at(5) == 0
    cost.observe(4, 1e6)  # the first compiles
    for _ in range(60):
        for num_allowed in (2, 4, 8):
            cost.observe(num_allowed, 3.0 + 2.0 * num_allowed)
    assert cost.at(6) == pytest.approx(15.0, rel=0.05)
    assert cost.at(0) == 0


# ---- never much slower than plain ------------------------------------------------------------


def round_of(right, count, **took):
    """Of a chain of `count` nodes: the text goes on as in its first `right` nodes, or longer."""
    kept = min(right, count)
    bonus = kept + 1 if right > kept else -1
    tokens, parents = list(range(count + 1)), list(range(-1, count))
    return Round(tokens, parents, list(range(kept + 1)), bonus, **took)


def num_right(rng, hit):
    return next(depth for depth in itertools.count() if rng.random() > hit)


def play(budget, cost, hit, *, claimed=None, step=0.0, host=0.0, rounds=1200, limit=15):
    """Milliseconds and tokens of made-up rounds of chains.

    Args:
        cost: Milliseconds by rows.
        hit: Probability that a node is accepted after its parent.
        claimed: What the drafter says it is; None for one that says nothing.
        step: Milliseconds of a node on the device.
        host: Milliseconds of any draft on the host.
    """
    rng = random.Random(1)
    curve, ms, tokens = CostCurve(cost), 0.0, 0
    budget.begin("d", 0.0, 0, None)
    for _ in range(rounds):
        num_allowed = budget.ask(limit)
        draft = Draft.empty(0)
        if num_allowed:
            full = chain(claimed or 0.5, num_allowed)
            draft = budget.cut(full if claimed else Draft(full.tree, full.sources))
        n = draft.tree.n_nodes - 1
        right = num_right(rng, hit)
        rows = budget.rows(n + 1)
        draft_ms = host if num_allowed else 0.0
        target_ms = curve.raw(rows) + step * n
        took = {"draft_ms": draft_ms, "target_ms": target_ms}
        budget.learn(round_of(right, n, num_allowed=num_allowed, num_rows=rows, **took))
        ms += draft_ms + target_ms
        tokens += min(right, n) + 1
    return ms, tokens


def speed_up(budget, cost, hit, **world):
    ms, tokens = play(budget, cost, hit, **world)
    return tokens * cost[1] / ms


WORLDS = {
    "lazy": {"step": 4.0},
    "lazy and dear": {"step": 40.0},
    "host": {"claimed": 0.7, "host": 1.0},
    "host and boastful": {"claimed": 0.95, "host": 1.0},
    "host and dear": {"claimed": 0.3, "host": 20.0},
}


@pairwise(
    cost=[pytest.param(EDGE, id="edge"), pytest.param(LINEAR, id="linear")],
    hit=[0.02, 0.3],
    world=WORLDS,
)
def test_a_drafter_that_does_not_pay_costs_next_to_nothing(cost, hit, world):
    assert speed_up(budget_of(cost), cost, hit, **WORLDS[world]) > 0.97


@pytest.mark.parametrize("world", ["lazy", "host", "host and boastful"])
@pytest.mark.parametrize("hit", [0.7, 0.95])
def test_a_drafter_that_pays_is_used_as_well_as_at_the_best_fixed_number(hit, world):
    settings = WORLDS[world]
    fixed = max(speed_up(FixedBudget(), EDGE, hit, limit=n, **settings) for n in (0, 1, 3, 7, 15))
    assert speed_up(budget_of(EDGE), EDGE, hit, **settings) > 0.95 * fixed


@pytest.mark.parametrize("world", ["lazy", "host"])
def test_a_drafter_that_gets_better_is_found_out(world):
    budget = budget_of(EDGE)
    play(budget, EDGE, 0.02, **WORLDS[world])
    assert speed_up(budget, EDGE, 0.95, **WORLDS[world]) > 2


@pytest.mark.parametrize("world", ["lazy", "host"])
def test_a_program_that_was_stopped_in_a_round_drafts_as_before(world):
    budget = budget_of(EDGE)
    play(budget, EDGE, 0.7, **WORLDS[world])
    before = deepcopy(budget)
    num_allowed = budget.ask(15)
    if "claimed" in WORLDS[world]:
        budget.cut(chain(WORLDS[world]["claimed"], num_allowed))
    stopped = {"draft_ms": 3_600_000.0, "target_ms": 3_600_000.0}
    budget.learn(round_of(0, 1, num_allowed=num_allowed, num_rows=2, **stopped))
    worlds = {"rounds": 100, **WORLDS[world]}
    assert speed_up(budget, EDGE, 0.7, **worlds) > 0.95 * speed_up(before, EDGE, 0.7, **worlds)


def test_a_cost_that_was_measured_too_high_is_found_out():
    busy = {width: ms * (8 if width > 1 else 1) for width, ms in EDGE.items()}
    budget = budget_of(busy)
    true = CostCurve(EDGE)
    rng = random.Random(2)
    budget.begin("d", 0.0, 0, None)
    widths = []
    for _ in range(600):
        draft = budget.cut(chain(0.95, budget.ask(15)))
        n = draft.tree.n_nodes - 1
        rows = budget.rows(n + 1)
        took = {"num_rows": rows, "target_ms": true.raw(rows)}
        budget.learn(round_of(num_right(rng, 0.95), n, num_allowed=15, **took))
        widths.append(rows)
    assert widths[0] == 1
    assert sum(width == 16 for width in widths[-100:]) > 60


BUSY = {1: 374.0, 2: 835.0}
"""All that was measured of `QUIET` while another program had the cores."""
QUIET = {1: 110.0, 2: 120.0, 4: 220.0, 8: 220.0, 16: 220.0}


@pytest.mark.parametrize("world", ["lazy", "host"])
def test_costs_of_a_busy_machine_do_not_keep_a_drafter_from_its_first_draft(world):
    settings = {**WORLDS[world], "step": 0.0, "rounds": 60}
    budget = budget_of(BUSY)
    play(budget, QUIET, 0.9, **settings)
    assert speed_up(budget, QUIET, 0.9, **settings) > 1.5


# ---- plain rounds for comparison -------------------------------------------------------------


def compared(hit, world, rounds=3000):
    """The rounds of a budget that compares, and milliseconds and tokens of all."""
    budget, seen = budget_of(EDGE), []
    budget.compares, learn = True, budget.learn
    budget.learn = lambda round: (seen.append(round), learn(round))
    return seen, *play(budget, EDGE, hit, rounds=rounds, **WORLDS[world])


@pytest.mark.parametrize("world", ["lazy", "host"])
@pytest.mark.parametrize("hit", [0.5, 0.7, 0.95])
def test_plain_rounds_for_comparison_cost_2_percent_at_most(hit, world):
    seen, ms, _ = compared(hit, world)
    plain = [round for round in seen if round.num_allowed == 0]
    drafted = [round for round in seen if round.num_allowed]
    token_ms = sum(round.draft_ms + round.target_ms for round in drafted)
    token_ms /= sum(len(round.path) for round in drafted)
    lost = len(plain) * (EDGE[1] - token_ms)
    assert lost < 0.021 * ms
    assert len(plain) > 20
    ends = [index for index, round in enumerate(seen) if round.num_allowed == 0]
    assert min(b - a for a, b in itertools.pairwise(ends)) > 6


def test_other_budgets_add_no_plain_round():
    for budget in (budget_of(EDGE), FixedBudget()):
        seen, learn = [], budget.learn
        budget.learn = lambda round, seen=seen, learn=learn: (seen.append(round), learn(round))
        play(budget, EDGE, 0.7, **WORLDS["lazy"])
        assert all(round.num_allowed for round in seen)
    budget.compares = True
    assert budget.ask(15) == 15
    assert budget_of(EDGE).fresh().compares is False


def test_an_engine_that_looks_ahead_gets_a_second_plain_round_and_no_third():
    budget = budget_of(EDGE)
    budget.compares = True
    plain, asked = {"num_allowed": 0, "num_rows": 1, "target_ms": EDGE[1]}, []
    play(budget, EDGE, 0.7, rounds=2000, **WORLDS["lazy"])
    while budget.ask(15):
        budget.learn(round_of(2, 3, num_allowed=3, num_rows=4, target_ms=EDGE[4]))
    asked.append(budget.ask(15))  # before the first one is learned
    budget.learn(round_of(0, 0, **plain))
    asked.append(budget.ask(15))  # before the second one is learned
    budget.learn(round_of(0, 0, **plain))
    assert asked[0] == 0 < asked[1]
