"""Breaking a stream of text between words: nothing is changed but where a line ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mlxspec_app.text.word_wrap import WordWrapper

TEXTS = st.text(alphabet="ab \n你🙂`~", max_size=60)


def wrapped(text, width):
    wrapper = WordWrapper(width)
    return wrapper.add(text) + wrapper.end()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one two three", "one two\nthree"),
        ("one two\nthree", "one two\nthree"),
        ("elephants are", "elephants\nare"),
        ("a  b", "a  b"),
        ("你好吗 你好", "你好吗\n你好"),
        ("```\none two three\n```\none two three", "```\none two three\n```\none two\nthree"),
    ],
)
def test_lines_break_between_words_and_code_stays_as_it_is(text, shown):
    assert wrapped(text, 8) == shown


@given(TEXTS, st.integers(1, 12), st.data())
def test_the_pieces_in_which_a_text_comes_make_no_difference(text, width, data):
    cut = data.draw(st.integers(0, len(text)))
    wrapper = WordWrapper(width)
    shown = wrapper.add(text[:cut]) + wrapper.add(text[cut:]) + wrapper.end()
    if max((cell_len(word) for word in text.split()), default=0) < width:
        assert shown == wrapped(text, width)
    assert "".join(shown.split()) == "".join(text.split())


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=8), max_size=20))
def test_no_row_is_wider_than_the_terminal_and_no_word_is_broken(words):
    shown = wrapped(" ".join(words), 10)
    assert all(cell_len(row) <= 10 for row in shown.split("\n"))
    assert shown.split() == words


def test_a_word_is_shown_as_soon_as_it_is_whole():
    wrapper = WordWrapper(20)
    assert [wrapper.add(piece) for piece in ("he", "llo", " wor", "ld")] == ["", "", "hello", ""]
    assert wrapper.end() == " world"
