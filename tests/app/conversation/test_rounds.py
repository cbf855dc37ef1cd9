"""The last round as the lane and the tree panel show it."""

import pytest

from mlxspec.trace.events import DraftNode, DraftProposed, DraftVerified, EmittedToken, PlainDecoded
from mlxspec.trace.stats import FORCED
from mlxspec_app.conversation.rounds import Round, positions
from mlxspec_app.widgets.draft.draft_lane import outcome, token_row
from mlxspec_app.widgets.draft.tree_rows import tree_rows


def make_round(nodes, path, *emit):
    """Nodes are (parent, text, q), numbered from 1."""
    made = [DraftNode(i, p, 1, text, q, "x") for i, (p, text, q) in enumerate(nodes, 1)]
    draft = DraftProposed(7, 0.0, 1, tuple(made), 3.1)
    return Round(draft, DraftVerified(7, 0.1, path, emit, 21.4, 0, 9))


CHAIN = make_round(
    [(0, " produced", 0.71), (1, " on", 0.64), (2, " his", 0.33), (3, " own", 0.5)],
    (1, 2),
    EmittedToken(1, " produced", "accepted", 0.93, 0.71),
    EmittedToken(1, " on", "accepted", 0.88, 0.64),
    EmittedToken(1, " its", "corrected", 0.5),
)
TREE = make_round(
    [
        *((0, " produced", 0.7), (0, " written", 0.1), (1, " on", 0.6)),
        *((1, " by", 0.2), (3, " his", 0.3), (5, " own", 0.5)),
    ],
    (1, 3),
    EmittedToken(1, " produced", "accepted"),
    EmittedToken(1, " on", "accepted"),
    EmittedToken(1, " its", "corrected", 0.88),
)
A = EmittedToken(1, " a", "accepted", 0.8)
FULL = make_round([(0, " a", 0.9)], (1,), A, EmittedToken(1, " b", "bonus"))
CUT = make_round([(0, " a", 0.9), (1, " b", 0.9)], (1, 2), A)  # the reply ends inside the path
PLAIN = Round(None, PlainDecoded(3, 0.1, (EmittedToken(1, " a", "plain", 0.5),), 20.0, 9))


def marks(round_):
    return [[(token.label, token.mark) for token in position] for position in positions(round_)]


def test_a_chain_reads_from_the_root_to_what_was_never_judged():
    assert marks(CHAIN) == [
        [("produced", "accepted")],
        [("on", "accepted")],
        [("his", "rejected"), ("its", "corrected")],
        [("own", "skipped")],
    ]
    assert marks(CUT) == [[("a", "accepted")], [("b", "accepted")]]


def test_a_forced_token_stands_once_and_each_token_has_its_own_probability():
    forced = DraftNode(1, 0, 1, "</t>", 1.0, FORCED)
    emit = (
        EmittedToken(1, "</t>", "forced", 1.0, 1.0),
        EmittedToken(2, " a", "accepted", 0.7, 0.9),
        EmittedToken(3, "</t>", "forced", 1.0),
    )
    draft = DraftProposed(7, 0.0, 1, (forced, DraftNode(2, 1, 2, " a", 0.9, "x")), 3.1)
    round_ = Round(draft, DraftVerified(7, 0.1, (1, 2), emit, 21.4, 0, 9))
    assert marks(round_) == [[("</t>", "forced")], [("a", "accepted")], [("</t>", "forced")]]
    probs = [token.target_prob for position in positions(round_) for token in position]
    assert probs == [1.0, 0.7, 1.0]
    (row,), _ = tree_rows(round_, 8)
    assert row.plain.rstrip() == "●━━━ ▸</t> 1.00 ━━━ ✓a .90 ━━━ ▸</t> 1.00"


def test_siblings_stand_with_the_node_that_beat_them():
    assert marks(TREE)[:2] == [
        [("produced", "accepted"), ("written", "rejected")],
        [("on", "accepted"), ("by", "rejected")],
    ]


def test_the_lane_marks_every_verdict_with_the_probabilities_below():
    tokens, probs = token_row(CHAIN, 100, probs=True)
    assert tokens.plain.split() == ["✓produced", "✓on", "✗his", "→its", "·own"]
    assert probs.plain.split() == [".71/.93", ".64/.88", ".33", "→", ".50", ".50"]
    assert tokens.plain.index("✗his") == probs.plain.index(".33")
    assert token_row(FULL, 50, probs=False)[0].plain.split() == ["✓a", "✚b"]
    assert token_row(PLAIN, 50, probs=True)[0].plain.split() == ["a"]


def test_a_lane_too_narrow_says_that_it_leaves_out():
    tokens, _ = token_row(CHAIN, 20, probs=False)
    assert tokens.plain == "✓produced  ✓on  …"


@pytest.mark.parametrize(
    ("round_", "words"),
    [
        (CUT, "k=2  kept 2"),
        (FULL, "k=1  kept 1 +1"),
        (TREE, "6 nodes, depth 4  kept 2 +1"),
        (PLAIN, "no draft"),
    ],
)
def test_the_outcome_says_size_and_what_was_kept(round_, words):
    assert outcome(round_).plain == words


def test_the_tree_has_the_kept_path_on_top():
    rows, hidden = tree_rows(TREE, 8)
    assert [row.plain.rstrip() for row in rows] == [
        "●━┳━ ✓produced .70 ━┳━ ✓on .60 ━┳━ →its .88",
        "  │                 │           └─ ✗his .30 ─── ·own .50",
        "  │                 └─ ✗by .20",
        "  └─ ✗written .10",
    ]
    assert hidden == 0


def test_a_tree_with_too_many_leaves_loses_the_least_probable_ones():
    rows, hidden = tree_rows(TREE, 2)
    text = "\n".join(row.plain for row in rows)
    assert len(rows) == 2
    assert hidden == 3
    assert "by" in text
    assert "written" not in text
    assert "his" not in text
    rows, _ = tree_rows(TREE, 1)  # the kept path stays
    assert rows[0].plain.split()[1::3] == ["✓produced", "✓on", "→its"]


def test_an_absurd_draft_is_drawn_in_part():
    chain = make_round([(i, " a", 0.9) for i in range(5000)], ())
    comb = make_round([(0, f" {i}", 0.01) for i in range(5000)], ())
    for round_ in (chain, comb):
        rows, hidden = tree_rows(round_, 8)
        assert 0 < len(rows) <= 8
        assert hidden > 4000
        assert token_row(round_, 80, probs=True)[0].cell_length < 90


def test_hostile_labels_are_neutralised():
    round_ = make_round([(0, "\x1b[2J", 0.9)], (), EmittedToken(1, "\x1b]0;x\a", "corrected"))
    text = token_row(round_, 80, probs=True)[0].plain + tree_rows(round_, 4)[0][0].plain
    assert "\x1b" not in text
    assert "\a" not in text
