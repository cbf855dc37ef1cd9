"""The tree panel's other views: who sees whom, what the cache keeps, and a tree that is narrow."""

import pytest

from mlxspec.trace.events import DraftVerified, EmittedToken, PlainDecoded
from mlxspec_app.conversation.rounds import Round, node_marks
from mlxspec_app.widgets.draft.cache_rows import CacheRows, cache_rows_of, row_lines
from mlxspec_app.widgets.draft.mask_rows import ancestor_mask, half_blocks, mask_rows
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.draft.tree_rows import indented_rows
from tests.app.conversation.test_rounds import CHAIN, TREE, make_round
from tests.support.app_driver import chat, replay
from tests.traces import make_fake

PLAIN = Round(None, PlainDecoded(3, 0.1, (EmittedToken(1, " a", "plain"),), 5.0, 10))
TREE_MASK = """\
1......
11.....
1.1....
11.1...
11..1..
11.1.1.
11.1.11"""


def drawn(rows):
    return [row.plain.rstrip() for row in rows]


# ---- the mask ----------------------------------------------------------------------------------


def test_a_node_sees_itself_and_what_it_hangs_on():
    rows = ["".join(".1"[seen] for seen in row) for row in ancestor_mask(TREE.nodes)]
    assert rows == TREE_MASK.split("\n")
    assert ancestor_mask(PLAIN.nodes) == [[True]]


@pytest.mark.parametrize(
    ("mask", "rows"),
    [
        ([[a <= b for a in range(6)] for b in range(6)], ["█▄    ", "███▄  ", "█████▄"]),
        (ancestor_mask(TREE.nodes), ["█▄     ", "█▄▀▄   ", "██ ▄▀▄ ", "▀▀ ▀ ▀▀"]),
        ([[True, False, False], [True, True, False], [True, False, True]], ["█▄ ", "▀ ▀"]),
    ],
)
def test_two_nodes_share_a_row_and_an_odd_one_has_its_upper_half(mask, rows):
    assert half_blocks(mask) == rows


def test_a_mask_without_room_shows_its_first_nodes_and_counts_the_rest():
    rows, hidden = mask_rows(TREE, 20, 2)
    assert (drawn(rows), hidden) == (["█▄", "█▄▀▄"], 3)


def test_wide_terminals_name_the_nodes_beside_the_mask():
    rows, _ = mask_rows(TREE, 80, 9)
    assert drawn(rows)[0].split() == ["█▄", "0", "●", "root", "1", "✓produced"]
    assert "written" not in "".join(drawn(mask_rows(TREE, 40, 9)[0]))


# ---- the tape ----------------------------------------------------------------------------------


def judged(num_emitted, rollback, context):
    """The tree with the path 1, 3, of which so many tokens were emitted."""
    emit = TREE.verdict.emit[:num_emitted]
    return Round(TREE.draft, DraftVerified(7, 0.1, (1, 3), emit, 20.0, rollback, context))


@pytest.mark.parametrize(
    ("round_", "rows"),
    [
        (judged(3, 4, 40), (37, 7, (0, 1, 3))),
        (judged(1, 6, 38), (37, 7, (0,))),  # the reply ends inside the path
        (PLAIN, (9, 1, (0,))),
    ],
)
def test_a_round_keeps_the_root_and_the_path_that_the_reply_has(round_, rows):
    assert cache_rows_of(round_) == CacheRows(*rows)


def test_each_step_of_a_round_is_a_row():
    assert drawn(row_lines(CacheRows(5, 4, (0, 2)), 60)) == [
        "staged   ▓▓▓▓▓░░░░",
        "verdict  ▓▓▓▓▓▓\u2573▓\u2573",
        "commit   ▓▓▓▓▓▓▓",
    ]
    assert drawn(row_lines(CacheRows(3, 6, None), 60)) == ["staged   ▓▓▓░░░░░░"]  # no verdict yet


def test_only_the_last_rows_of_a_long_cache_are_drawn_and_the_others_counted():
    rows = drawn(row_lines(CacheRows(1931, 4, (0,)), 30))
    assert rows[0] == "staged   1,920 ▓▓▓▓▓▓▓▓▓▓▓░░░░"
    assert rows[2] == "commit         ▓▓▓▓▓▓▓▓▓▓▓▓"
    wide = drawn(row_lines(CacheRows(1931, 4, (0,)), 100))
    notes = [row.rsplit("  ", 1)[1] for row in wide]
    assert notes == ["4 staged", "1 kept, 3 rolled back", "1,932 committed"]


@pytest.mark.parametrize("width", [0, 1, 10, 24])
def test_a_tape_longer_than_the_screen_is_cut(width):
    cells = [row.cell_length for row in row_lines(CacheRows(9, 64, ()), width)]
    assert max(cells) <= max(10, width)


# ---- the indented tree -------------------------------------------------------------------------


def test_a_narrow_tree_is_indented_where_it_branches_and_a_run_too_long_goes_on_below():
    rows, hidden = indented_rows(TREE, 9, 60)
    assert hidden == 0
    assert drawn(rows) == [
        "●",
        "  ✓produced .70",
        "    ✓on .60",
        "      →its .88",
        "      ✗his .30 ·own .50",
        "    ✗by .20",
        "  ✗written .10",
    ]
    rows, _ = indented_rows(CHAIN, 9, 30)
    assert drawn(rows)[:2] == ["● ✓produced .71 ✓on .64", "  →its .50"]
    rows, _ = indented_rows(make_round([(i, " word", 0.5) for i in range(4)], ()), 9, 24)
    assert drawn(rows) == ["● ✗word .50 ·word .50", "    ·word .50 ·word .50"]


def test_the_least_probable_branch_of_a_narrow_tree_goes_first_and_the_kept_path_stays():
    rows, hidden = indented_rows(TREE, 6, 60)
    assert "written" not in "".join(drawn(rows))
    assert (len(rows), hidden) == (5, 1)  # the root has one child now, on its own row
    rows, hidden = indented_rows(TREE, 1, 60)
    assert (drawn(rows), hidden) == (["● ✓produced .70 ✓on .60 →its .88"], 4)


# ---- on the screen -----------------------------------------------------------------------------


def test_every_node_is_kept_or_rejected_or_was_never_judged():
    marks = [node_marks(TREE)[index] for index in range(1, 7)]
    assert marks == ["accepted", "rejected", "accepted", "rejected", "rejected", "skipped"]


async def test_commands_and_letters_change_the_view_of_the_tree():
    async with chat(make_fake.tree()) as driver:
        await driver.say("hello")
        await driver.press("M")  # goes to the prompt
        assert not driver.screen.query_one(TreePanel).display
        await driver.press("backspace")
        for line, title in [
            ("/tree mask", "ancestor mask, round"),
            ("/tree tape", "cache rows, round"),
            ("/tree tape", "draft tree, round"),
        ]:
            await driver.say(line)
            assert title in driver.shown
        await driver.say("/tree tree")
        assert not driver.screen.query_one(TreePanel).display
        await driver.press("tab", "M")
        for is_shown in (True, False, True):  # it opens again in its last view
            assert ("ancestor mask, round" in driver.shown) == is_shown
            await driver.press("f3")


async def test_a_replay_shows_the_views_of_a_draft_before_its_verdict():
    async with replay(make_fake.tree(), size=(100, 40)) as driver:
        await driver.press("space", "M")
        driver.session.go_to(driver.session.timeline.end_of_round(2) - 2)
        await driver.settle()
        assert "ancestor mask, round 2" in driver.shown
        num_nodes = len(driver.screen.state.reply.rounds[-1].nodes)
        assert driver.screen.query_one(TreePanel).size.height >= 1 + (num_nodes + 2) // 2
        await driver.press("K")
        assert "staged   ▓" in driver.shown
        assert "commit   ▓" not in driver.shown
        await driver.press("right")
        assert "commit   ▓" in driver.shown
