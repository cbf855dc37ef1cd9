"""Tokens to text: split characters, stop strings, and nothing that is ever taken back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.text.stream import TextStream


def stream_of(*pieces, stop=()):
    """A stream whose token i stands for the bytes of piece i."""
    as_bytes = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return TextStream(as_bytes.__getitem__, stop)


def released(*pieces, stop=()):
    """What each token releases, then what `finish` does."""
    stream = stream_of(*pieces, stop=stop)
    return [stream.push(token) for token in range(len(pieces))] + [stream.finish()]


def before_first_stop(text, stop):
    """The text up to the stop string that is complete first, read letter by letter."""
    for end in range(len(text) + 1):
        starts = [end - len(s) for s in stop if text[:end].endswith(s)]
        if starts:
            return text[: min(starts)], True
    return text, False


# ---- characters ----------------------------------------------------------------------------


def test_whole_characters_come_at_once():
    assert released("Zoë", " said", "") == ["Zoë", " said", "", ""]


def test_a_character_split_over_tokens_comes_with_its_last_byte():
    euro, smile = "€".encode(), "😀".encode()
    assert released(b"a" + euro[:1], euro[1:2], euro[2:] + b"b") == ["a", "", "€b", ""]
    assert released(*(smile[i : i + 1] for i in range(4))) == ["", "", "", "😀", ""]


def test_an_incomplete_character_at_the_end_shows_as_a_replacement():
    assert released(b"a\xe2\x82") == ["a", "\ufffd"]


def test_bytes_that_are_no_text_show_as_replacements_and_hide_nothing():
    assert released(b"\xff", b"a\xe2", b"b") == ["\ufffd", "a", "\ufffdb", ""]


def test_a_special_token_releases_nothing_and_breaks_no_character():
    euro = "€".encode()
    assert released(euro[:2], b"", euro[2:]) == ["", "", "€", ""]


@given(st.binary(max_size=40), st.lists(st.integers(0, 40)))
def test_pieces_joined_are_the_whole_whatever_the_cuts(text, cuts):
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert "".join(released(*pieces)) == text.decode("utf-8", "replace")


# ---- stop strings --------------------------------------------------------------------------


def test_a_stop_string_inside_a_token_cuts_it():
    assert released("one. two", stop=["."]) == ["one", ""]


def test_a_stop_string_over_three_tokens_is_held_back_and_dropped():
    assert released("go on", "EN", "D O", "F", stop=["END OF"]) == ["go on", "", "", "", ""]


def test_a_beginning_that_comes_to_nothing_is_released():
    assert released("go E", "N", "ough", stop=["END"]) == ["go ", "", "ENough", ""]


def test_what_is_held_back_at_the_end_is_released_by_finish():
    assert released("go EN", stop=["END"]) == ["go ", "EN"]


def test_the_longest_possible_beginning_is_held_back():
    assert released("aab", "aaa", stop=["aaab"])[:2] == ["aab", ""]
    assert released("xa", "b", "ab", "c", stop=["abac", "bab"]) == ["x", "", "a", "", ""]


def test_a_beginning_that_fails_may_hold_the_next_beginning():
    assert released("a", "a", "b", stop=["ab"]) == ["", "a", "", ""]


def test_a_stop_string_may_contain_a_split_character():
    euro = "€".encode()
    assert released(b"a" + euro[:2], euro[2:] + b"!", stop=["€!"]) == ["a", "", ""]


def test_of_two_stop_strings_in_one_token_the_one_that_begins_first_counts():
    assert released("a--b##c", stop=["##", "--"]) == ["a", ""]


def test_nothing_comes_after_a_stop():
    stream = stream_of("a.b", "c", stop=["."])
    assert stream.push(0) == "a"
    assert stream.ended_by == "."
    assert (stream.push(1), stream.finish()) == ("", "")


def test_a_stream_without_a_stop_string_has_not_stopped():
    stream = stream_of("a", "b", stop=["c"])
    stream.push(0)
    stream.finish()
    assert not stream.ended_by


def test_finish_releases_once():
    stream = stream_of("a", stop=["ab"])
    stream.push(0)
    assert (stream.finish(), stream.finish()) == ("a", "")


def test_refuses_an_empty_stop_string():
    with pytest.raises(ValueError, match="a stop string is empty"):
        stream_of("a", stop=["x", ""])


# ---- special tokens ------------------------------------------------------------------------

NAMES = {"<a>": 0, "<a>b": 1}  # tokens without bytes; the others are single letters


def spelt(*tokens, stop):
    """What a reply says, and which stop string ended it; names are special tokens."""
    texts = [*NAMES, *(token for token in tokens if token not in NAMES)]
    stream = TextStream(lambda i: b"" if i < 2 else texts[i].encode(), stop, NAMES)
    said = [stream.push(texts.index(token)) for token in tokens]
    return "".join(said) + stream.finish(), stream.ended_by


@pytest.mark.parametrize(
    ("tokens", "stop", "said"),
    [
        (["x", "<a>", "y"], "<a>", "x"),
        (["x", "<a>", "y", "z"], "<a>y", "x"),
        (["w", "x", "<a>", "y"], "x<a>", "w"),
        (["x", "<a>", "<a>", "y"], "<a><a>", "x"),
        (["x", "<a>b", "y"], "<a>b", "x"),
        (["x", "<", "a", ">", "y"], "<a>", "x"),  # written in letters it ends the reply too
    ],
)
def test_a_stop_string_may_name_special_tokens(tokens, stop, said):
    assert spelt(*tokens, stop=["no", stop]) == (said, stop)


@pytest.mark.parametrize("stop", ["<a>z", "a>", "<", "z<a>b", "<a><a>"])
def test_special_tokens_that_end_nothing_are_left_out(stop):
    assert spelt("x", "<a>b", "<a>", "y", stop=[stop]) == ("xy", "")
    assert spelt("x", "<a>b", "<a>", stop=[stop]) == ("x", "")


def test_a_special_token_that_no_stop_string_names_breaks_none():
    assert spelt("x", "<a>", "y", stop=["xy"]) == ("", "xy")


letters = st.text(alphabet="ab€", max_size=14)


@given(letters, st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), max_size=3))
def test_letter_by_letter_the_text_ends_before_the_first_complete_stop_string(text, stop):
    stream = stream_of(*text, stop=stop)
    pieces = [stream.push(token) for token in range(len(text))]
    expected, is_stopped = before_first_stop(text, stop)
    assert ("".join(pieces) + stream.finish(), bool(stream.ended_by)) == (expected, is_stopped)


@given(
    st.lists(st.text(alphabet="ab€", max_size=4), max_size=6),
    st.text("ab€", min_size=1, max_size=4),
)
def test_with_one_stop_string_the_cuts_between_tokens_do_not_matter(pieces, stop):
    expected, _ = before_first_stop("".join(pieces), [stop])
    assert "".join(released(*pieces, stop=[stop])) == expected


@given(
    st.lists(st.text(alphabet="ab€", max_size=4), max_size=6),
    st.text("ab€", min_size=1, max_size=4),
)
def test_no_more_is_held_back_than_a_stop_string_could_need(pieces, stop):
    stream, said, read = stream_of(*pieces, stop=[stop]), "", ""
    for token, piece in enumerate(pieces):
        said, read = said + stream.push(token), read + piece
        if not stream.ended_by:
            held = read[len(said) :]
            assert said + held == read
            assert stop.startswith(held)
            assert len(held) < len(stop)
