"""The growing soft wrap: however text arrives, its rows are the same, and nothing is torn."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len, split_graphemes

from mlxspec_app.text.wrap import WrappedText

# letters, spaces, wide and zero-width characters, and everything that joins to its neighbour
ALPHABET = st.sampled_from("ab ,.\n \u4e16\u754c\u0301\u200d\ufe0f\u2764\U0001f642\U0001f469")
TEXTS = st.lists(ALPHABET, max_size=60).map("".join)
WIDTHS = st.integers(2, 12)


def row_texts(wrapped):
    return [wrapped.row_text(row) for row in wrapped.rows]


def wrapped_at_once(text, width):
    wrapped = WrappedText(width)
    wrapped.append(text)
    return wrapped


@given(st.lists(TEXTS, max_size=8), WIDTHS)
@example(["a" * 5, "\ufe0f", " b"], 4)
@example(["aa a\u2764", "\ufe0f"], 4)
@example(["\U0001f469\u200d", "\U0001f469 a"], 3)
def test_any_split_gives_the_rows_of_one_append(pieces, width):
    grown = WrappedText(width)
    for piece in pieces:
        grown.append(piece)
    assert grown.rows == wrapped_at_once("".join(pieces), width).rows


@given(TEXTS, WIDTHS)
def test_rows_together_are_the_text(text, width):
    wrapped = wrapped_at_once(text, width)
    lines = [""] * len(wrapped.lines)
    for row in wrapped.rows:
        lines[row.line] += wrapped.row_text(row)
    assert "\n".join(lines) == text


@given(TEXTS, WIDTHS)
def test_a_row_fits_but_for_the_spaces_at_its_end(text, width):
    for row in row_texts(wrapped_at_once(text, width)):
        is_one_character = len(split_graphemes(row.rstrip(" "))[0]) == 1
        assert cell_len(row.rstrip(" ")) <= width or is_one_character


@given(TEXTS, WIDTHS)
def test_no_character_is_torn(text, width):
    wrapped = wrapped_at_once(text, width)
    for before, after in pairwise(wrapped.rows):
        if before.line == after.line:
            line = wrapped.lines[before.line].text
            starts = {start for start, _, _ in split_graphemes(line)[0]}
            assert after.start in starts


@given(st.lists(TEXTS, min_size=1, max_size=8), WIDTHS)
def test_runs_cover_a_row_and_name_the_piece_they_came_from(pieces, width):
    wrapped = WrappedText(width)
    for tag, piece in enumerate(pieces):
        wrapped.append(piece, tag)
    owners = [[]]
    for tag, piece in enumerate(pieces):
        for char in piece:
            owners.append([]) if char == "\n" else owners[-1].append(tag)
    for row in wrapped.rows:
        runs = wrapped.runs(row)
        edges = [row.start, *(run.end for run in runs)]
        assert [run.start for run in runs] == edges[:-1]
        assert edges[-1] == row.end
        assert all(run.tag == owners[row.line][run.end - 1] for run in runs)


@given(TEXTS, WIDTHS, WIDTHS)
def test_a_new_width_gives_the_rows_of_that_width(text, width, other):
    wrapped = wrapped_at_once(text, width)
    wrapped.set_width(other)
    assert wrapped.rows == wrapped_at_once(text, other).rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one two three", ["one two ", "three"]),
        ("one  twotwo", ["one  ", "twotwo"]),
        ("abcdefghijkl m", ["abcdefgh", "ijkl m"]),
        ("ab cdefghijkl", ["ab ", "cdefghij", "kl"]),
        ("世界世界世", ["世界世界", "世"]),
        ("ab世界cd", ["ab世界cd"]),
        ("abc世界cd", ["abc世界", "cd"]),
        ("one\n\ntwo", ["one", "", "two"]),
        ("", [""]),
        ("a\n", ["a", ""]),
        ("12345678  ", ["12345678  "]),
    ],
)
def test_breaks_where_a_reader_expects_it(text, rows):
    assert row_texts(wrapped_at_once(text, 8)) == rows


def test_a_character_of_two_pieces_belongs_to_the_later_one():
    wrapped = WrappedText(20)
    for tag, piece in enumerate(["a\U0001f469", "\u200d", "\U0001f680b"]):
        wrapped.append(piece, tag)
    assert [(run.start, run.end, run.tag) for run in wrapped.runs(wrapped.rows[0])] == [
        (0, 1, 0),
        (1, 5, 2),
    ]


def test_appending_wraps_only_the_last_row_again():
    wrapped = wrapped_at_once("word " * 400, 20)
    before = list(wrapped.rows)
    first = wrapped.append("more words than fit into one row of it")
    assert first == len(before) - 1
    assert wrapped.rows[:first] == before[:first]


@given(st.lists(TEXTS, min_size=1, max_size=8), WIDTHS, st.data())
def test_cutting_pieces_off_gives_the_rows_of_the_others(pieces, width, data):
    num_left = data.draw(st.integers(1, len(pieces)))
    whole, rest = WrappedText(width), WrappedText(width)
    for tag, piece in enumerate(pieces):
        whole.append(piece, tag)
        if tag < num_left:
            rest.append(piece, tag)
    before = list(whole.rows)
    first = whole.cut(num_left)
    assert (whole.rows, whole.lines) == (rest.rows, rest.lines)
    assert whole.rows[:first] == before[:first]
    assert whole.append("more") == rest.append("more")
    assert whole.rows == rest.rows


def test_cutting_leaves_the_rows_before_alone():
    wrapped = WrappedText(20)
    for number in range(400):
        wrapped.append(f"word {number} ", number)
    assert wrapped.cut(399) >= len(wrapped.rows) - 4


@given(st.lists(TEXTS, min_size=1, max_size=8), WIDTHS)
def test_the_rows_of_a_piece_hold_all_of_it(pieces, width):
    wrapped = WrappedText(width)
    for tag, piece in enumerate(pieces):
        wrapped.append(piece, tag)
    for y, row in enumerate(wrapped.rows):
        for run in wrapped.runs(row):
            assert y in wrapped.rows_of(run.tag)
