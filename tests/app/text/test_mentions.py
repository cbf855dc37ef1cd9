"""Files and long pastes in a message."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec_app.text.folds import Folds, folded
from mlxspec_app.text.mentions import MentionError, begun_mention, matching_files, with_files


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = '```'\n", encoding="utf-8")
    (tmp_path / "LICENSE").write_text("MIT", encoding="utf-8")
    (tmp_path / ".hidden").touch()
    return tmp_path


def test_a_file_is_brought_along(folder):
    assert with_files("see @notes.txt please", folder) == (
        "see @notes.txt please\n\nnotes.txt:\n```\none\ntwo\n```"
    )
    assert with_files("@LICENSE @LICENSE", folder).count("MIT") == 1


def test_a_block_in_a_file_does_not_end_its_own(folder):
    assert with_files("@src/a.py", folder).endswith("src/a.py:\n````\nx = '```'\n````")


@pytest.mark.parametrize("text", ["@anna hello", "me@home.org", "@ notes.txt", "a @ b", "@"])
def test_what_names_no_file_stays_as_it_is(folder, text):
    assert with_files(text, folder) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@nots.txt", "the file nots.txt does not exist; @ and a space"),
        ("@src/b", "the file src/b does not exist"),
        ("@src", "the file src is a folder"),
        ("@large.txt", "larger than 100 kB"),
        ("@binary.bin", "is not UTF-8 text"),
        ("@latin.txt", "is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_brought_is_refused_in_words(folder, text, message):
    (folder / "large.txt").write_text("a" * 100_001)
    (folder / "binary.bin").write_bytes(b"a\0b")
    (folder / "latin.txt").write_bytes(b"\xe4")
    with pytest.raises(MentionError, match=message):
        with_files(text, folder)


@pytest.mark.parametrize(
    ("start", "names"),
    [("no", ["notes.txt"]), ("src/", ["src/a.py"]), ("", ["LICENSE", "notes.txt", "src/"])],
)
def test_what_was_typed_finds_files(folder, start, names):
    assert matching_files(start, folder) == names


@pytest.mark.parametrize("start", ["nowhere/x", "~nobody-of-that-name/x"])
def test_a_folder_that_is_not_there_holds_nothing(folder, start):
    assert matching_files(start, folder) == []


@pytest.mark.parametrize(
    ("line", "begun"), [("see @no", "no"), ("@", ""), ("see @no ", None), ("a@b", None)]
)
def test_a_mention_that_is_being_typed_is_seen(line, begun):
    assert begun_mention(line) == begun


def test_a_long_paste_is_one_line_until_it_is_sent():
    folds, text = Folds(), "x\n" * 211 + "end"
    sign = folds.fold(text)
    assert sign == "[Pasted 212 lines]"
    assert folds.unfold(f"look: {sign}!") == f"look: {text}!"
    assert folds.fold(text) == sign
    assert folds.fold("y\n" * 211 + "end") == "[Pasted 212 lines, 2]"


def test_a_short_paste_stays_as_it_is():
    assert Folds().fold("x\n" * 49 + "end") == "x\n" * 49 + "end"


@given(st.lists(st.sampled_from(["a\n" * 60, "b\n" * 60, "[Pasted 61 lines]\n" * 60, "c"])))
def test_what_is_sent_is_what_was_pasted(pastes):
    folds = Folds()
    shown = " ".join(folds.fold(paste) for paste in pastes)
    assert folds.unfold(shown) == " ".join(pastes)


# ---- messages that were sent -------------------------------------------------------------------


def test_files_fold_to_their_names_and_a_long_middle_to_its_number_of_lines(folder):
    text = with_files("see @notes.txt and @src/a.py", folder)
    assert (
        folded(text) == "see @notes.txt and @src/a.py\n\n[notes.txt, 2 lines]\n\n[src/a.py, 1 line]"
    )
    lines = [f"line {n}" for n in range(60)]
    assert folded("\n".join(lines)).split("\n") == [*lines[:3], "[54 more lines]", *lines[-3:]]


@pytest.mark.parametrize(
    "text",
    [
        "short\n" * 49 + "end",
        "a block of its own\n\nnotes.txt:\n```\none\n```",  # no @ names it
        "see @notes.txt\n\nnotes.txt:\n```\none\n",  # without an end
        "see @notes.txt\nnotes.txt:\n```\none\n```",
    ],
)
def test_what_is_short_and_no_file_stays_as_it_is(text):
    assert folded(text) == text


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["```\n", "one\n", "\n", "````\n", "x.txt:\n"])))
def test_every_file_folds_whatever_is_in_it(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("files")
    content = "".join(parts).rstrip() or "x"
    (folder / "x.txt").write_text(content)
    sent = with_files("@x.txt", folder)
    assert folded(sent).startswith("@x.txt\n\n[x.txt, ")
    assert len(folded(sent).split("\n")) == 3
