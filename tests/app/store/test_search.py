"""Search: what people type finds what was said, and nothing they type is an error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec_app.store.records import Generation
from mlxspec_app.store.search_text import snippet_parts, spaced
from tests.support.store_files import edit, open_writer, say

EXAMPLES = settings(max_examples=150)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A writer on a store that no test changes."""
    writer = open_writer(tmp_path_factory.mktemp("store") / "chats.sqlite3")
    for title, *texts in (
        ("Sorting", "How do I sort a list?", "Use the sorted function; it's stable, O(n log n)."),
        ("Coffee", "Where is the best café in Zürich?", "I'd try C++ Coffee on Main Street."),
        ("日本語", "投機的デコードとは何ですか", "小さなモデルが次の数語を推測します。"),
        ("Korean", "세계 안녕 Café list list list"),
    ):
        say(writer, writer.new_chat(title), *texts)
    yield writer
    writer.close()


def found(writer, query):
    return sorted(hit.title for hit in writer.search(query))


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("sort", ["Sorting", "Sorting"]),
        ("SORTED stable", ["Sorting"]),
        ("sta fun", ["Sorting"]),
        ("cafe", ["Coffee", "Korean"]),
        ("zurich", ["Coffee"]),
        ("it's", ["Sorting"]),
        ("C++", ["Coffee"]),
        ('"main street"', ["Coffee"]),
        ('"street main"', []),
        ('"best caf', ["Coffee"]),
        ("推測", ["日本語"]),
        ("推 測", ["日本語"]),
        ("測推", []),
        ("デコード", ["日本語"]),
        ("안녕", ["Korean"]),
        ("list coffee", []),
        ("ort", []),
        ("list " * 5_000, ["Korean", "Sorting"]),  # more words than an expression can hold
    ],
)
def test_finds_words_by_their_beginning_and_phrases_as_a_whole(library, query, titles):
    assert found(library, query) == titles


@pytest.mark.parametrize(
    "query", ["", " ", '"', '""', "'", "*", "(", "-", "🙂", "\x00", "…", '" "']
)
def test_a_query_without_a_word_finds_nothing(library, query):
    assert library.search(query) == []


@pytest.mark.parametrize("operator", ["AND", "OR", "NOT", "NEAR(a b)", "text:", "-", "^"])
def test_an_operator_is_a_word_like_others(library, operator):
    assert found(library, f"list {operator} zzz") == []


@EXAMPLES
@given(
    st.text(max_size=30) | st.text(alphabet="\"'*()^-+:{}\x00 aAND世é\u200b\ud800\x02", max_size=40)
)
def test_nothing_typed_is_an_error(library, query):
    library.search(query)


def test_the_better_match_comes_first(library):
    assert [hit.title for hit in library.search("list")] == ["Korean", "Sorting"]


@EXAMPLES
@given(st.text(max_size=60))
def test_a_snippet_gives_back_the_text_that_the_index_was_given(text):
    plain = "".join(part.text for part in snippet_parts(spaced(text)))
    assert plain.split() == spaced(text).replace("\u200b", "").split()


def test_a_snippet_marks_what_was_found_on_one_line(writer):
    (message,) = say(writer, writer.new_chat("x"), "Before\nthe 投機的 end")
    (hit,) = writer.search("the 機的")
    assert [part.text for part in hit.snippet] == ["Before ", "the", " 投", "機的", " end"]
    assert [part.is_match for part in hit.snippet] == [False, True, False, True, False]
    assert (hit.message, hit.note) == (message, "you")


def test_a_long_message_is_cut_around_the_match(writer):
    say(writer, writer.new_chat(), "word " * 200 + "needle " + "word " * 200)
    (hit,) = writer.search("needle")
    text = "".join(part.text for part in hit.snippet)
    assert "needle" in text
    assert len(text) < 120
    assert text.startswith("…")


def test_a_reply_is_found_once_it_has_ended(writer):
    reply = writer.begin_reply(writer.new_chat("Reply"), None, Generation())
    writer.extend_reply(reply, "hay nee")
    writer.extend_reply(reply, "dle")
    assert found(writer, "needle") == []
    writer.finish_reply(reply, "finished")
    assert found(writer, "needle") == ["Reply"]


def test_branches_that_were_left_are_found_and_deleted_chats_are_not(writer):
    chat = writer.new_chat("Chat")
    (first,) = say(writer, chat, "needle")
    edit(writer, first, "pin")
    assert found(writer, "needle") == ["Chat"]
    writer.delete(chat)
    assert found(writer, "needle") == []
    writer.undelete(chat)
    assert found(writer, "needle") == ["Chat"]
    writer.delete(chat)
    writer.purge()
    assert found(writer, "pin") == []
