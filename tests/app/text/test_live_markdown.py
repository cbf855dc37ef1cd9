"""Light Markdown: it follows from the text alone, covers it without a gap, and looks at little."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxspec_app.conversation.message_text import MessageText
from mlxspec_app.conversation.messages import Span
from mlxspec_app.text import live_markdown
from mlxspec_app.text.code_blocks import find_blocks
from mlxspec_app.text.live_markdown import LiveMarkdown, Look, pieces_in

MARKS = st.lists(st.sampled_from("ab *_`#>-~\n[]()1.|\\世"), max_size=40).map("".join)
BLOCKS = st.lists(
    st.sampled_from(["```\n", "```py\n", "~~~~\n", "a `b` c\n", "**a** *b*\n", "# x\n", "> y"])
).map("".join)
PIECES = st.lists(MARKS | BLOCKS, max_size=6)


def written(*pieces, width=40):
    text = MessageText(is_markdown=True)
    text.wrapped.set_width(width)
    for piece in pieces:
        text.extend([Span(piece)])
    return text


def looks(text):
    return [text.look_of(number) for number in range(len(text.wrapped.lines))]


def styled(line):
    """Return the characters of one line that do not look plain, with how they look."""
    text = written(line)
    [look] = looks(text)
    return [(line[piece.start : piece.end], piece.look) for piece in look.pieces]


@given(PIECES)
@example(["`", "``", "python\n", "x", "\n``", "`"])
@example(["**a", "*", "*"])
@example(["*a `b` c", "*"])
@example(["- a " * 3, "-"])
def test_any_split_gives_the_looks_of_one_append(pieces):
    assert looks(written(*pieces)) == looks(written("".join(pieces)))


@given(st.lists(st.sampled_from(["*", "**", "`", "a", " b", "_", "[x](y)"]), max_size=60))
def test_any_split_of_a_line_longer_than_its_reach_gives_the_same_looks(pieces):
    shortest = live_markdown._REACH  # a line is looked at again from its end, not from its start
    start = "*a* " * (shortest // 3)
    assert looks(written(start, *pieces)) == looks(written(start + "".join(pieces)))


@given(PIECES)
def test_the_text_stays_what_it_was(pieces):
    text = written(*pieces)
    assert "\n".join(line.text for line in text.wrapped.lines) == "".join(pieces)


@given(PIECES, st.integers(0, 10), st.integers(0, 30))
def test_pieces_cover_what_is_asked_for_without_a_gap(pieces, start, length):
    text = written(*pieces)
    for number, line in enumerate(text.wrapped.lines):
        end = min(len(line.text), start + length)
        found = list(pieces_in(text.look_of(number), min(start, end), end))
        edges = [min(start, end), *(piece.end for piece in found)]
        assert [piece.start for piece in found] == edges[:-1]
        assert edges[-1] == end
        assert all(piece.start < piece.end for piece in found)


@given(PIECES)
def test_blocks_of_code_are_those_that_can_be_copied(pieces):
    text = "".join(pieces)
    starts = {text.count("\n", 0, block.start) for block in find_blocks(text)}
    seen = looks(written(text))
    assert all(seen[line].is_code for line in starts)


@given(PIECES, st.data())
def test_cutting_spans_off_gives_the_looks_of_the_others(pieces, data):
    num_left = data.draw(st.integers(0, len(pieces)))
    text = written(*pieces)
    text.cut_to(num_left)
    rest = written(*pieces[:num_left])
    rest.extend([Span("")])
    text.extend([Span("")])
    assert looks(text) == looks(rest)
    assert text.wrapped.rows == rest.wrapped.rows


@given(PIECES, MARKS)
def test_rows_before_the_first_changed_one_look_as_before(pieces, more):
    text = written(*pieces, width=8)

    def seen(number):
        row = text.wrapped.rows[number]
        return row, list(pieces_in(text.look_of(row.line), row.start, row.end))

    before = [seen(number) for number in range(text.num_rows)]
    first = text.extend([Span(more)])
    assert [seen(number) for number in range(first)] == before[:first]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("**a** b", [("**", Look.STRONG), ("a", Look.STRONG), ("**", Look.STRONG)]),
        ("an *a*", [("*", Look.EMPHASIS), ("a", Look.EMPHASIS), ("*", Look.EMPHASIS)]),
        ("`a` b", [("`", Look.CODE), ("a", Look.CODE), ("`", Look.CODE)]),
        ("- a", [("-", Look.STRONG)]),
        ("12. a", [("12.", Look.STRONG)]),
        ("> a", [("> ", Look.PLAIN)]),
        ("---", [("---", Look.PLAIN)]),
        ("[a](b)", [("[", Look.STRONG), ("a", Look.STRONG), ("](b)", Look.STRONG)]),
        ("# a", [("#", Look.STRONG), (" a", Look.STRONG)]),
    ],
)
def test_reads_what_people_write(line, parts):
    assert [(text, look & ~Look.MARK) for text, look in styled(line)] == parts


@pytest.mark.parametrize(
    "line", ["2*3*4", "snake_case_name", "#hash", "-1", "**open", "`open", "a ** b ** c", "\\*a\\*"]
)
def test_leaves_alone_what_is_no_markdown(line):
    assert styled(line) == []


def test_nothing_inside_code_is_read():
    text = written("```py\n**a**\n```\n**b**")
    assert [bool(look.pieces) for look in looks(text)] == [True, False, True, True]
    assert [look.is_code for look in looks(text)] == [True, True, True, False]


def test_a_long_line_is_looked_at_from_near_its_end(monkeypatch):
    read = []
    real = live_markdown._constructs

    def counted(text, start, end, outer):
        read.append(end - start)
        return real(text, start, end, outer)

    monkeypatch.setattr(live_markdown, "_constructs", counted)
    text = written("word **bold** " * 1000)
    read.clear()
    text.extend([Span("more")])
    assert max(read) < 2 * live_markdown._REACH


def test_only_the_last_line_is_looked_at_again(monkeypatch):
    text = written("one\n" * 1000)
    seen = []
    real = LiveMarkdown._look
    monkeypatch.setattr(
        LiveMarkdown, "_look", lambda self, *line: seen.append(line) or real(self, *line)
    )
    text.extend([Span("two")])
    assert len(seen) == 1
