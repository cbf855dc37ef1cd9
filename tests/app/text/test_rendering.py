"""Rendered Markdown: what is shown, where it comes from, and how little is done for a new token."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mlxspec_app.text.rendering import blocks
from mlxspec_app.text.rendering import document as document_module
from mlxspec_app.text.rendering.document import Document
from mlxspec_app.text.rendering.inline import closing_marks
from mlxspec_app.text.rendering.pieces import Tone

PARTS = [
    "# H\n", "## *x* y\n", "- a\n", "  - b **c**\n", "1. x\n", "2. y\n", "```py\n", "```\n",
    "x = 1\n", "> q\n", "> - z\n", "| a | b |\n|---|--:|\n| 1 | `c` |\n", "\n", "\n\n", "text ",
    "**bold** ", "*it* ", "`co de` ", "**open ", "`op ", "[l](http://x.y) ", "<http://a.b> ",
    "&lt; ", "\\* ", "世界 ", "🙂 ", "---\n", "~~s~~ ", "_u_ ", "a_b_c ", "2 * 3 ", "***both*** ",
]  # fmt: skip
STAND_INS = ("•", "<", "*")  # shown for a sign of a list, `&lt;` and `\*`


def rendered(text, width=60, markup="rendered"):
    document = Document(width, markup=markup)
    document.extend([text])
    return document


def streamed(text, step, width=60, markup="rendered"):
    document = Document(width, markup=markup, is_open=True)
    for start in range(0, len(text), step):
        document.extend([text[start : start + step]])
    document.set_open(False)
    return document


def shown(document):
    """The rows as text, without empty ones at the end."""
    rows = ["".join(piece.text for piece in row.pieces).rstrip() for row in document.rows]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def tones(document, word):
    return [p.tone for row in document.rows for p in row.pieces if p.text == word]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("# One\n## Two\n### Three", ["━━ One", "── Two", "─ Three"]),
        ("a **b** *c* ~~d~~ `e`", ["a b c d e"]),
        ("- a\n  - b\n* c", ["• a", "  • b", "• c"]),
        ("1. a\n   - b\n10. c", ["1. a", "   • b", "10. c"]),
        ("> a\n> b", ["│ a", "│ b"]),
        ("a\nb", ["a", "b"]),
        ("[a](http://b.c 'd') <http://e>", ["a (http://b.c) http://e"]),
        ("![a](b.png)", ["!a (b.png)"]),
        ("\\*a\\* &amp; <b>", ["*a* & <b>"]),
        ("snake_case and 2 * 3 * 4", ["snake_case and 2 * 3 * 4"]),
        ("a ``b ` c`` d", ["a b ` c d"]),
        ("```py\na\n\n  b\n```\nc", ["py", "a", "", "  b", "c"]),
        ("- a\n  ```\n  x\n  ```\n  b", ["• a", "  x", "  b"]),
        ("---", ["─" * 40]),
        ("-", ["•"]),
    ],
)
def test_marks_are_not_shown_but_what_they_mean(text, rows):
    assert shown(rendered(text, 40)) == rows


def test_a_table_is_laid_out_in_columns():
    text = "| way | time |\n|---|--:|\n| **merge** | n log n |\n| b | n |"
    assert shown(rendered(text)) == [
        "way   │    time",
        "──────┼────────",
        "merge │ n log n",
        "b     │       n",
    ]


def test_a_table_too_wide_wraps_its_cells_and_keeps_to_the_width():
    text = "| a | b |\n|---|---|\n| one | " + "two three " * 8 + "|"
    rows = shown(rendered(text, 30))
    assert max(map(cell_len, rows)) <= 30
    assert len(rows) > 4
    assert " ".join(rows).count("three") == 8


def test_a_table_that_still_grows_is_shown_as_written():
    document = Document(60, markup="rendered", is_open=True)
    document.extend(["| a | b |\n|---|---|\n| 1 |"])
    assert shown(document) == ["| a | b |", "|---|---|", "| 1 |"]
    document.extend([" 2 |\n\n"])
    assert shown(document)[:3] == ["a │ b", "──┼──", "1 │ 2"]


def test_words_stand_out_by_lightness_and_slant_alone():
    document = rendered("# head\n\n**loud** *soft* ~~gone~~ `x`\n\n```python\ndef f(): # why\n```")
    assert tones(document, "head") == [Tone.LOUD]
    assert tones(document, "loud") == [Tone.LOUD]
    assert tones(document, "soft") == [Tone.ITALIC]
    assert tones(document, "gone") == [Tone.STRIKE]
    assert tones(document, "x") == [Tone.CODE]
    assert tones(document, "def") == [Tone.CODE | Tone.LOUD]
    assert tones(document, "# why") == [Tone.CODE | Tone.QUIET | Tone.ITALIC]


def test_a_string_over_several_lines_is_a_string_in_each():
    document = streamed('```python\n"""one\nif two\n"""\nif x:\n```', 3)
    assert tones(document, "if two") == [Tone.CODE | Tone.ITALIC]
    assert tones(document, "if") == [Tone.CODE | Tone.LOUD]


@pytest.mark.parametrize("language", ["", "no-such-language", "json", "diff", "html", "c++"])
def test_code_of_any_language_is_shown_as_it_is(language):
    text = f"```{language}\n- <a b='1'> {{}} \\ \"\n```"
    assert shown(streamed(text, 1))[-1] == "- <a b='1'> {} \\ \""


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("a **b", "**"), ("a **b *c", "***"), ("a `b **c", "`"), ("a **b** c", ""),
        ("2 * 3", ""), ("a_b", ""), ("[a](http://b", ")"), ("~~a", "~~"), ("a **", ""),
    ],
)  # fmt: skip
def test_what_a_text_leaves_open_is_closed(text, marks):
    assert closing_marks(text) == marks


@pytest.mark.parametrize("text", ["so **loud", "so **loud**", "so **loud*", "so **lo"])
def test_marks_do_not_appear_while_they_are_typed(text):
    document = Document(60, markup="rendered", is_open=True)
    document.extend([text])
    plain, loud = shown(document)[0].split(" ")
    assert (plain, tones(document, loud)) == ("so", [Tone.LOUD])
    assert "*" not in loud


def looks(document):
    """The rows with the tone of each character, without empty rows at the end."""
    rows = [
        [(char, piece.tone) for piece in row.pieces for char in piece.text if char != " "]
        for row in document.rows
    ]
    while rows and not rows[-1]:
        rows.pop()
    return rows


MARKUPS = st.sampled_from(["rendered", "exact", "plain"])


@settings(max_examples=250)
@given(
    st.lists(st.sampled_from(PARTS), max_size=14), st.integers(1, 9), st.integers(12, 70), MARKUPS
)
def test_a_text_that_streams_in_looks_like_one_that_was_there(parts, step, width, markup):
    text = "".join(parts)
    assert looks(streamed(text, step, width, markup)) == looks(rendered(text, width, markup))


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(PARTS) | st.text("ab *_`#>-~\n[]()1.|\\世", max_size=9), max_size=14),
    st.integers(1, 9),
    st.sampled_from(["exact", "plain"]),
)
def test_the_exact_text_stays_what_it_was(parts, step, markup):
    text = "".join(parts)
    for document in (rendered(text, 1000, markup), streamed(text, step, 1000, markup)):
        rows = ("".join(piece.text for piece in row.pieces) for row in document.rows)
        assert "\n".join(rows) == text


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("**a** b", [("**", Tone.QUIET), ("a", Tone.LOUD), ("**", Tone.QUIET)]),
        ("an *a*", [("*", Tone.QUIET), ("a", Tone.ITALIC), ("*", Tone.QUIET)]),
        ("`a` b", [("`", Tone.QUIET), ("a", Tone.CODE), ("`", Tone.QUIET)]),
        ("- a", [("-", Tone.LOUD)]),
        ("12. a", [("12.", Tone.LOUD)]),
        ("> a", [("> ", Tone.QUIET)]),
        ("---", [("---", Tone.QUIET)]),
        ("# a", [("# ", Tone.QUIET), ("a", Tone.LOUD)]),
        ("snake_case_name #hash", []),
        ("**open `open a ** b ** c", []),
    ],
)
def test_the_exact_text_has_quiet_marks(line, parts):
    [row] = rendered(line, markup="exact").rows
    assert [(p.text, p.tone) for p in row.pieces if p.tone] == parts


def test_nothing_inside_code_is_read():
    document = rendered("```py\n**a**\n```\n> **b**", markup="exact")
    assert [row.is_code for row in document.rows] == [True, True, True, False]
    assert [row.is_quote for row in document.rows] == [False, False, False, True]
    assert {piece.tone for piece in document.rows[1].pieces} == {Tone.CODE}


@settings(max_examples=150)
@given(st.lists(st.sampled_from(PARTS), max_size=14), st.integers(12, 70))
def test_each_character_shown_is_the_one_in_its_place_in_the_source(parts, width):
    text = "".join(parts)
    source = text.split("\n")
    places = []
    for row in rendered(text, width).rows:
        for piece in row.pieces:
            assert piece.line >= 0 or not piece.text.strip() or Tone.SIGN in piece.tone
            if piece.line >= 0 and piece.text not in STAND_INS:
                found = source[piece.line][piece.start : piece.start + len(piece.text)]
                assert found == piece.text
                places += [(piece.line, piece.start + i) for i in range(len(piece.text))]
    assert len(places) == len(set(places))


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(PARTS), max_size=14), st.integers(1, 9), st.integers(0, 60), MARKUPS
)
def test_a_text_that_is_cut_looks_like_the_shorter_one(parts, step, num_left, markup):
    text = "".join(parts)
    document, kept = streamed(text, step, markup=markup), text[: num_left * step]
    if kept != text:
        document.cut_to(num_left)
    assert looks(document) == looks(rendered(kept, markup=markup))


@pytest.mark.parametrize("width", [12, 100])
def test_another_width_wraps_as_if_it_had_been_there_from_the_start(width):
    text = "".join(random.Random(3).choices(PARTS, k=60)) + "word **bold** and `code` " * 20
    document = streamed(text, 9)
    document.set_width(width)
    assert shown(document) == shown(rendered(text, width))


@settings(max_examples=60)
@given(st.lists(st.text("ab\n 世", min_size=1, max_size=9), min_size=1, max_size=8), MARKUPS)
def test_the_rows_of_a_text_hold_all_that_is_shown_of_it(texts, markup):
    document = Document(8, markup=markup)
    document.extend(texts)
    for y, row in enumerate(document.rows):
        for piece in row.pieces:
            line = document.lines[piece.line]
            for at in range(piece.start, piece.start + len(piece.text) if piece.line >= 0 else 0):
                assert y in document.rows_of(line.tag_at(at))
                assert document.row_at(piece.line, at) == y


@pytest.mark.parametrize(
    "text",
    [
        "word **bold** and `code` more. " * 60,
        "```python\n" + "x = f(1)  # why\n" * 120,
        "- item **bold** of a list\n" * 90,
        "a paragraph.\n\n" * 90,
        "a verse of a poem\n" * 120,
        "word **never closed " * 350,
    ],
    ids=["paragraph", "code", "list", "paragraphs", "poem", "open"],
)
@pytest.mark.parametrize("markup", ["rendered", "exact"])
def test_the_work_for_a_token_does_not_grow_with_the_text(text, markup, monkeypatch):
    done = []
    parse, lex, inline = blocks.Region, blocks.lex_line, document_module.inline_lines

    def counted(found, *args, **more):
        done.append(sum(map(len, found)))
        return parse(found, *args, **more)

    def counted_lex(language, text, *args):
        done.append(len(text))
        return lex(language, text, *args)

    def counted_inline(found, *args, **more):
        done.append(sum(map(len, found)))
        return inline(found, *args, **more)

    monkeypatch.setattr(document_module, "Region", counted)
    monkeypatch.setattr(document_module, "inline_lines", counted_inline)
    monkeypatch.setattr(blocks, "lex_line", counted_lex)
    document, costs = Document(80, markup=markup, is_open=True), []
    for end in range(4, len(text), 4):
        done.clear()
        changed = document.extend([text[end - 4 : end]])
        costs.append(sum(done) + sum(len(row.pieces) for row in document.rows[changed:]))
    third = len(costs) // 3
    assert max(costs[-third:]) <= 1.2 * max(costs[:third]) + 60
