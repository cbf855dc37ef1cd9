"""A whole chat as Markdown and as JSON."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec_app.store.records import Chat, Generation, StoredMessage
from mlxspec_app.store.text import chat_json, chat_markdown

CHAT = Chat(3, "Sorting", 1_700_000_000.0, 1_700_000_060.0, "Be brief", {"temperature": 0.5}, 2)
TURN = StoredMessage(1, 3, None, "user", "finished", "Sort a list", 1_700_000_000.0)
REPLY = StoredMessage(
    2,
    3,
    1,
    "assistant",
    "finished",
    "```python\nxs.sort()\n```",
    1_700_000_050.0,
    generation=Generation("SmolLM2", "suffix", {"cache": "full"}, 7, {"rounds": 4}, "stop"),
)


def reply(text="Hi", state="finished", error="", target="SmolLM2"):
    generation = Generation(target, "", error=error)
    return StoredMessage(2, 3, 1, "assistant", state, text, 0.0, generation=generation)


def test_markdown_shows_the_conversation():
    assert chat_markdown(CHAT, [TURN, REPLY]) == (
        "# Sorting\n\n*2023-11-14 22:13 UTC*\n\n## System\n\nBe brief\n\n## You\n\nSort a list\n\n"
        "## SmolLM2, drafted by suffix\n\n```python\nxs.sort()\n```\n"
    )


def test_an_empty_chat_is_a_heading_and_a_date():
    assert chat_markdown(Chat(1, " \n", 0.0, 0.0), []) == "# Chat\n\n*1970-01-01 00:00 UTC*\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```python\nx = 1", "```python\nx = 1\n```"),
        ("~~~~\n```\n~~~", "~~~~\n```\n~~~\n~~~~"),
        ("```\na\n```\nb", "```\na\n```\nb"),
        ("a ```code``` b", "a ```code``` b"),
        ("```one``` line", "```one``` line"),
        ("```\na\n```` ", "```\na\n````"),
    ],
)
def test_an_open_code_block_does_not_swallow_the_next_message(text, shown):
    assert shown + "\n\n## You" in chat_markdown(CHAT, [reply(text), TURN])


@pytest.mark.parametrize(
    ("message", "note"),
    [
        (reply(state="partial"), "*The reply ends here: it was stopped or cut off.*"),
        (reply(state="failed", error="out\nof memory"), "*The reply broke off: out of memory*"),
        (reply(state="failed"), "*The reply broke off: the reason is not known*"),
    ],
)
def test_a_reply_that_is_not_whole_says_so(message, note):
    assert chat_markdown(CHAT, [message]).endswith(f"\n\n{note}\n")


def test_a_reply_of_an_unknown_model_is_the_assistants():
    assert "## Assistant\n\nHi" in chat_markdown(CHAT, [reply(target="")])


def test_json_keeps_everything():
    document = json.loads(chat_json(CHAT, [TURN, REPLY]))
    assert document["format"] == "mlxspec-chat/1"
    assert document["created"] == "2023-11-14T22:13:20+00:00"
    assert (document["system"], document["leaf"]) == ("Be brief", 2)
    turn, answer = document["messages"]
    assert "generation" not in turn
    assert (answer["parent"], answer["text"]) == (1, REPLY.text)
    assert answer["generation"]["stats"] == {"rounds": 4}


@settings(max_examples=50)
@given(st.lists(st.text(max_size=20), max_size=4), st.text(max_size=10))
def test_json_gives_back_any_text(texts, title):
    messages = [
        StoredMessage(number, 1, None, "user", "finished", text, 0.0)
        for number, text in enumerate(texts)
    ]
    document = json.loads(chat_json(Chat(1, title, 0.0, 0.0), messages))
    assert [message["text"] for message in document["messages"]] == texts
    assert document["title"] == title
