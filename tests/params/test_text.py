"""Tokens to text: split characters, stop strings, and nothing that is ever taken back."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
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


EURO, SMILE = "€".encode(), "😀".encode()


@pytest.mark.parametrize(
    ("pieces", "texts"),
    [
        (("Zoë", " said", ""), ["Zoë", " said", "", ""]),
        # A character that is split over tokens comes with its last byte.
        ((b"a" + EURO[:1], EURO[1:2], EURO[2:] + b"b"), ["a", "", "€b", ""]),
        ([SMILE[i : i + 1] for i in range(4)], ["", "", "", "😀", ""]),
        ((b"a\xe2\x82",), ["a", "\ufffd"]),
        ((b"\xff", b"a\xe2", b"b"), ["\ufffd", "a", "\ufffdb", ""]),
        ((EURO[:2], b"", EURO[2:]), ["", "", "€", ""]),  # a special token in between
    ],
)
def test_whole_characters_come_at_once_and_nothing_else(pieces, texts):
    assert released(*pieces) == texts


@settings(max_examples=50)
@given(st.binary(max_size=40), st.lists(st.integers(0, 40)))
def test_pieces_joined_are_the_whole_whatever_the_cuts(text, cuts):
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert "".join(released(*pieces)) == text.decode("utf-8", "replace")


# ---- stop strings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "stop", "texts"),
    [
        (["one. two"], ["."], ["one", ""]),
        (["go on", "EN", "D O", "F"], ["END OF"], ["go on", "", "", "", ""]),
        (["go E", "N", "ough"], ["END"], ["go ", "", "ENough", ""]),
        (["go EN"], ["END"], ["go ", "EN"]),  # what is held back comes at the end
        (["aab", "aaa"], ["aaab"], ["aab", "", "aaa"]),
        (["xa", "b", "ab", "c"], ["abac", "bab"], ["x", "", "a", "", ""]),
        (["a", "a", "b"], ["ab"], ["", "a", "", ""]),
        ([b"a" + EURO[:2], EURO[2:] + b"!"], ["€!"], ["a", "", ""]),
        (["a--b##c"], ["##", "--"], ["a", ""]),  # the one that begins first counts
    ],
)
def test_a_stop_string_is_held_back_and_dropped_and_no_more_than_it_could_need(pieces, stop, texts):
    assert released(*pieces, stop=stop) == texts


def test_nothing_comes_after_a_stop_and_an_empty_one_is_refused():
    stream = stream_of("a.b", "c", stop=["."])
    assert stream.push(0) == "a"
    assert stream.ended_by == "."
    assert (stream.push(1), stream.finish()) == ("", "")
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


@settings(max_examples=50)
@given(letters, st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), max_size=3))
def test_letter_by_letter_the_text_ends_before_the_first_complete_stop_string(text, stop):
    stream = stream_of(*text, stop=stop)
    pieces = [stream.push(token) for token in range(len(text))]
    expected, is_stopped = before_first_stop(text, stop)
    assert ("".join(pieces) + stream.finish(), bool(stream.ended_by)) == (expected, is_stopped)


@settings(max_examples=50)
@given(
    st.lists(st.text(alphabet="ab€", max_size=4), max_size=6),
    st.text("ab€", min_size=1, max_size=4),
)
def test_the_cuts_do_not_matter_and_no_more_is_held_back_than_a_stop_string_could_need(
    pieces, stop
):
    expected, _ = before_first_stop("".join(pieces), [stop])
    assert "".join(released(*pieces, stop=[stop])) == expected
    stream, said, read = stream_of(*pieces, stop=[stop]), "", ""
    for token, piece in enumerate(pieces):
        said, read = said + stream.push(token), read + piece
        if not stream.ended_by:
            held = read[len(said) :]
            assert said + held == read
            assert stop.startswith(held)
            assert len(held) < len(stop)
