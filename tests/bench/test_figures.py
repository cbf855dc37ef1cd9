"""From rows to figures: every number is worked out by hand here."""

import pytest

from mlxspec.bench import report
from mlxspec.bench.report import arm_figures
from mlxspec.trace.difference import Difference
from tests.support.bench_arms import case_of, reply_of, row_of

STATS = {
    "rounds": 4,
    "plain_forwards": 1,
    "drafted": 12,
    "accepted": 6,
    "accepted_at_depth": [3, 2, 1],
    "drafted_at_depth": [4, 4, 4],
    "draft_s": 0.2,
    "target_s": 0.6,
    "prefill_s": 1.0,
    "total_s": 2.0,
    "host_syncs": 5,
}


def figures_of(rows, arm="fast"):
    return arm_figures(rows, arm, "plain")


def pair(case, plain_s, fast_s, tokens=11):
    """Rows of both arms: ten tokens after the first in so many seconds."""
    return [
        row_of(case, "plain", reply_of(range(tokens), plain_s)),
        row_of(case, "fast", reply_of(range(tokens), fast_s)),
    ]


def test_a_ratio_is_taken_within_a_conversation_after_the_first_tokens():
    case = case_of()
    plain = row_of(case, "plain", reply_of(range(11), 10.0))
    fast = row_of(case, "fast", reply_of(range(11), 2.0, first_tokens=5, ttft_s=9.0))
    spread = figures_of([plain, fast]).categories["qa"]
    assert spread.median == pytest.approx((6 / 2.0) / (10 / 10.0))


def test_turns_of_a_conversation_count_together():
    rows = [
        row_of(case_of(), arm, *(reply_of(range(11), seconds) for seconds in turns))
        for arm, turns in (("plain", (4.0, 6.0)), ("fast", (1.0, 4.0)))
    ]
    assert figures_of(rows).categories["qa"].median == pytest.approx(2.0)


def test_a_category_has_median_and_quartiles():
    rows = [
        row for number, s in enumerate((1, 2, 4, 5, 10)) for row in pair(case_of(number), 10, s)
    ]
    spread = figures_of(rows).categories["qa"]  # ratios 10, 5, 2.5, 2, 1
    assert (spread.low, spread.median, spread.high, spread.count) == (2.0, 2.5, 5.0, 5)
    assert spread.of_means == pytest.approx((10 / 1 + 10 / 2 + 10 / 4 + 10 / 5 + 1) / 5)


def test_the_mean_is_over_categories_and_copying_stands_apart():
    rows = [
        *pair(case_of(1, "qa"), 10, 10),
        *pair(case_of(2, "rag"), 10, 5),
        *pair(case_of(3, "rag"), 10, 5),
        *pair(case_of(4, "copy"), 10, 1),
    ]
    figures = figures_of(rows)
    assert figures.mean == pytest.approx(1.5)
    assert figures.categories["copy"].median == pytest.approx(10.0)


def test_a_reply_that_came_all_at_once_has_no_speed():
    case = case_of()
    rows = pair(case, 10, 5) + pair(case_of(2), 10, 0.0)
    rows[3] = row_of(rows[3].case, "fast", reply_of(range(3), 0.0, first_tokens=3))
    assert figures_of(rows).categories["qa"].count == 1


def test_rounds_are_counted_by_depth_and_given_the_depth_before():
    row = row_of(case_of(), "fast", reply_of(range(11), stats=STATS, forwards=5, rows=17))
    figures = figures_of([row])
    assert figures.tokens_per_forward == pytest.approx(11 / 5)
    assert figures.rows_per_token == pytest.approx(17 / 11)
    rounds = figures.rounds
    assert rounds["acceptance_by_depth"] == [0.75, 0.5, 0.25]
    assert rounds["acceptance_given_reached"] == pytest.approx([3 / 4, 2 / 3, 1 / 2])
    assert rounds["syncs_per_forward"] == 1.0
    shares = [rounds[f"{name}_share"] for name in ("draft", "target", "host")]
    assert shares == pytest.approx([0.2, 0.6, 0.2])


def test_depths_of_replies_of_different_depth_add_up():
    shallow = {**STATS, "accepted_at_depth": [1], "drafted_at_depth": [4]}
    replies = [reply_of(range(11), stats=stats) for stats in (STATS, shallow)]
    figures = figures_of([row_of(case_of(), "fast", *replies)])
    assert figures.rounds["acceptance_by_depth"] == [4 / 8, 2 / 8, 1 / 8]


def test_what_is_not_told_is_not_guessed():
    figures = figures_of([row_of(case_of(), "fast", reply_of(range(5)))])
    assert figures.rows_per_token is None
    assert figures.rounds == {}
    assert figures.mean is None


# ---- the report ------------------------------------------------------------------------------

SETUP = {
    "model": "tiny",
    "weights": "float32",
    "device": "A Chip",
    "system": "Linux",
    "blas": "OpenBLAS",
    "versions": {"mlx": "1"},
    "max_tokens": 8,
    "num_draft_tokens": 15,
    "lookahead": 4,
}


def round_of(rows, **more):
    settings = {"arms": ["plain", "fast"], "baseline": "plain", "cost": None, **more}
    return report.BenchResult(SETUP, rows, **settings)


def greedy_rows(difference):
    plain, fast = pair(case_of(), 10, 5)
    differences = (difference,)
    return [plain, row_of(fast.case, "fast", *fast.replies, differences=differences)]


@pytest.mark.parametrize(
    ("difference", "is_real", "words"),
    [
        (None, False, "fast: 1 of 1 greedy replies are those of plain"),
        (Difference(3, 1, 2, 0.04, 0.05), False, "after 3 tokens, top-2 gap 0.04: a near-tie"),
        (Difference(3, 1, 2, 0.25, 0.05), True, "gap 0.25: NOT A NEAR-TIE, as rounding explains"),
        (Difference(3, None, 2, None), True, "after 3 tokens, where one of the two ends"),
    ],
)
def test_greedy_replies_agree_or_the_first_difference_is_told(difference, is_real, words):
    outcome = round_of(greedy_rows(difference))
    assert outcome.has_real_difference is is_real
    assert words in report.text(outcome)


def test_the_report_says_on_what_it_was_measured_before_any_figure():
    lines = report.text(round_of(greedy_rows(None))).splitlines()
    assert lines[:5] == [
        "model     tiny",
        "weights   float32",
        "device    A Chip",
        "system    Linux",
        "blas      OpenBLAS",
    ]


@pytest.mark.parametrize("rows", [[], greedy_rows(None)])
def test_an_interrupted_run_says_so(rows):
    said = f"! interrupted: these are the {len(rows)} conversations so far"
    assert said in report.text(round_of(rows, is_partial=True))


def test_a_drafter_that_broke_down_is_named():
    broken = row_of(case_of(), "fast", reply_of(range(5), fault="no memory"))
    assert "! fast failed in 1 replies: no memory" in report.text(round_of([broken]))
