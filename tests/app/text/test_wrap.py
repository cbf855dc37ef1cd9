"""The soft wrap: nothing is torn, and a row fits but for the spaces at its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, split_graphemes

from mlxspec_app.text.tagged_lines import TaggedLines
from mlxspec_app.text.wrap import breaks

# letters, spaces, wide and zero-width characters, and everything that joins to its neighbour
ALPHABET = st.sampled_from("ab ,. \u4e16\u754c\u0301\u200d\ufe0f\u2764\U0001f642\U0001f469")
TEXTS = st.lists(ALPHABET, max_size=60).map("".join)
WIDTHS = st.integers(2, 12)


def rows_of(text, width):
    ends = [*breaks(text, width), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(TEXTS, WIDTHS)
def test_a_row_fits_but_for_the_spaces_at_its_end(text, width):
    assert "".join(rows_of(text, width)) == text
    for row in rows_of(text, width):
        is_one_character = len(split_graphemes(row.rstrip(" "))[0]) == 1
        assert cell_len(row.rstrip(" ")) <= width or is_one_character


@given(TEXTS, WIDTHS)
def test_no_character_is_torn(text, width):
    assert set(breaks(text, width)) <= {start for start, _, _ in split_graphemes(text)[0]}


@given(TEXTS, TEXTS, WIDTHS)
def test_a_row_depends_on_the_text_before_its_end(text, more, width):
    *complete, _ = rows_of(text, width)
    clusters = {end for _, end, _ in split_graphemes(text + more)[0]}
    if len(text) in clusters:
        assert rows_of(text + more, width)[: len(complete)] == complete


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
        ("", [""]),
        ("12345678  ", ["12345678  "]),
    ],
)
def test_breaks_where_a_reader_expects_it(text, rows):
    assert rows_of(text, 8) == rows


def tagged(pieces):
    lines = TaggedLines()
    for piece in pieces:
        lines.append(piece)
    return lines.lines


@given(st.lists(TEXTS | st.just("\n"), min_size=1, max_size=8))
def test_runs_cover_a_line_and_name_the_piece_they_came_from(pieces):
    owners = [[]]
    for tag, piece in enumerate(pieces):
        for char in piece:
            owners.append([]) if char == "\n" else owners[-1].append(tag)
    for line, own in zip(tagged(pieces), owners, strict=True):
        runs = line.runs(0, len(line.text))
        assert [run.start for run in runs] == [0, *(run.end for run in runs)][:-1]
        assert not runs or runs[-1].end == len(line.text)
        assert all(run.tag == own[run.end - 1] for run in runs)


def test_a_character_of_two_pieces_belongs_to_the_later_one():
    [line] = tagged(["a\U0001f469", "\u200d", "\U0001f680b"])
    assert [tuple(run) for run in line.runs(0, 5)] == [(0, 1, 0), (1, 5, 2)]
