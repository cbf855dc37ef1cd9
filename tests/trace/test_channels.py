"""Channels of a reply in the trace: old recordings open, and the split adds up to the text."""

import json

import pytest

from mlxspec.errors import TraceError
from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
)
from mlxspec.trace.file import event_from_json, event_to_json
from mlxspec.trace.reply_text import ReplyText
from mlxspec.trace.stats import GenerationStats

MARK = EmittedToken(1, "<think>", "plain", 0.5, None, "mark")
THOUGHT = EmittedToken(2, "hm", "accepted", 0.5, 0.25, "reasoning")
CLOSING = EmittedToken(3, "</think>", "accepted", 0.5, 0.25, "mark")
ANSWER = EmittedToken(4, "yes", "bonus", 0.5)
NODES = (DraftNode(1, 0, 2, "hm", 0.5, "x"), DraftNode(2, 1, 3, "</think>", 0.5, "x"))
EVENTS = (
    GenerationStarted("t", "d"),
    PlainDecoded(1, 0.1, (MARK,), 1.0, 3),
    DraftProposed(2, 0.2, 1, NODES, 1.0),
    DraftVerified(2, 0.3, (1, 2), (THOUGHT, CLOSING, ANSWER), 1.0, 0, 6),
    GenerationFinished(0.4, "stop", "!"),
)


def test_an_event_with_channels_comes_back():
    assert [event_from_json(event_to_json(event)) for event in EVENTS] == [*EVENTS]


def test_a_token_of_the_answer_is_written_and_read_as_before_channels_existed():
    written = json.loads(event_to_json(PlainDecoded(1, 0.1, (ANSWER,), 1.0, 3)))
    assert written["emit"] == [[4, "yes", "bonus", 0.5, None]]
    line = '{"t":"plain","r":1,"ts":0.1,"emit":[[7,"x","plain",0.5,null]],"ms":1.0,"context":3}'
    assert event_from_json(line).emit == (EmittedToken(7, "x", "plain", 0.5, None, "answer"),)


def test_a_channel_that_does_not_exist_is_refused():
    line = event_to_json(PlainDecoded(1, 0.1, (MARK,), 1.0, 3)).replace('"mark"', '"dream"')
    with pytest.raises(TraceError, match="channel='dream'"):
        event_from_json(line)


def test_reasoning_and_answer_are_told_apart_and_no_text_is_lost():
    said = ReplyText()
    for event in EVENTS:
        said.add(event)
    assert (said.reasoning, said.answer) == ("hm", "yes!")
    assert said.text == "<think>hm</think>yes!"
    cut = ReplyText()  # text that comes with the end belongs to the channel of the last token
    cut.add(PlainDecoded(1, 0.1, (THOUGHT,), 1.0, 3))
    cut.add(GenerationFinished(0.4, "cancelled", "..."))
    assert (cut.reasoning, cut.answer) == ("hm...", "")


def test_tokens_of_reasoning_are_counted():
    stats = GenerationStats()
    for event in EVENTS:
        stats.add(event)
    assert (stats.as_dict()["reasoning_tokens"], stats.generated_tokens) == (1, 4)
