"""The trace: what is written comes back, nothing in a file breaks the reader, no text is lost."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.errors import TraceError
from mlxspec.trace.events import (
    CostMeasured,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    TurnStarted,
)
from mlxspec.trace.file import TraceWriter, event_from_json, event_to_json, read_trace
from mlxspec.trace.reply_text import ReplyText
from tests.traces import make_fake

NODES = (DraftNode(1, 0, 5, " a", 0.5, "x"), DraftNode(2, 1, 6, " b", None, "x"))
DRAFT = DraftProposed(1, 0.1, 4, NODES, 1.5)


def verdict(*path: int, r: int = 1) -> DraftVerified:
    emit = (EmittedToken(9, " c", "corrected", 0.4),)
    return DraftVerified(r, 0.2, path, emit, 20.0, 1, 7)


def written(path, *events):
    with TraceWriter(path) as writer:
        for event in events:
            writer.write(event)
    return path


@pytest.mark.parametrize("name", make_fake.TRACES)
def test_what_is_written_comes_back(tmp_path, name):
    events = make_fake.TRACES[name]()
    assert list(read_trace(written(tmp_path / "t.jsonl", *events))) == events


@settings(max_examples=50)
@given(st.text(st.characters(codec=None, categories=None)))
def test_any_text_survives_a_line(text):
    line = event_to_json(TurnStarted("user", text))
    assert event_from_json(line) == TurnStarted("user", text)
    assert "\n" not in line


def test_a_later_session_appends_and_a_last_line_cut_short_is_passed_over(tmp_path):
    path = tmp_path / "t.jsonl"
    events = [TurnStarted("user", "one"), TurnStarted("user", "half a pair: \ud83d")]
    for event in events:
        written(path, event)
    with path.open("a") as file:
        file.write('{"t":"turn","role":"us')
    assert list(read_trace(path)) == events


def test_unknown_fields_of_a_later_writer_are_passed_over():
    line = '{"t":"turn","role":"user","text":"hi","mood":"good"}'
    assert event_from_json(line) == TurnStarted("user", "hi")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("3", "event None"),
        ('{"t":["turn"]}', "allowed are turn"),
        ('{"t":"turn","role":"user"}', "lacks a field"),
        ('{"t":"turn","role":1,"text":""}', "role=1"),
        ('{"t":"prefill","ts":NaN,"done":1,"total":1}', "ts=nan"),
        ('{"t":"prefill","ts":Infinity,"done":1,"total":1}', "ts=inf"),
        ('{"t":"prefill","ts":0.0,"done":true,"total":1}', "done=True"),
        ('{"t":"prefill","ts":0.0,"done":1' + "0" * 400 + ',"total":1}', "done="),
        ('{"t":"plain","r":1,"ts":0,"emit":[[1," a","guessed"]],"ms":1,"context":1}', "guessed"),
        (
            '{"t":"plain","r":1,"ts":0,"emit":[[1,"","plain",1,1,"dream"]],"ms":1}',
            "channel='dream'",
        ),
        ('{"t":"plain","r":1,"ts":0,"emit":{},"ms":1,"context":1}', "not a list"),
        ('{"t":"plain","r":1,"ts":0,"emit":[7],"ms":1,"context":1}', "trace row"),
        ('{"t":"verify","r":1,"ts":0,"path":["1"],"emit":[],"ms":1,"rollback":0}', "path="),
        ('{"t":"meta","target":"a","drafter":"b","format":"mlxspec-trace/9"}', "mlxspec-trace/9"),
    ],
)
def test_says_what_is_wrong_with_a_line(line, complaint):
    with pytest.raises(TraceError, match=complaint.replace("[", r"\[")):
        event_from_json(line)


@pytest.mark.parametrize(
    "parents", [[(1, 2)], [(0, 0)], [(1, 0), (1, 0)], [(2, 1), (1, 0)], [(1, -1)], [(1, 1)]]
)
def test_refuses_a_draft_that_is_no_tree(parents):
    nodes = [[index, parent, 5, " a", 0.5, "x"] for index, parent in parents]
    line = json.dumps({"t": "draft", "r": 1, "ts": 0, "root": 4, "nodes": nodes, "ms": 1})
    with pytest.raises(TraceError, match="draft node"):
        event_from_json(line)


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([verdict()], "does not follow the draft"),
        ([DRAFT, verdict(r=2)], "does not follow the draft"),
        ([DRAFT, GenerationFailed(0.2, "x"), verdict()], "does not follow the draft"),
        ([DRAFT, verdict(1), verdict(1)], "does not follow the draft"),
        ([DRAFT, verdict(3)], "a child of the node before"),
        ([DRAFT, verdict(2)], "a child of the node before"),
        ([DRAFT, verdict(1, 1)], "a child of the node before"),
    ],
)
def test_refuses_a_verdict_that_does_not_fit_its_draft(tmp_path, events, complaint):
    path = written(tmp_path / "t.jsonl", GenerationStarted("t", "d"), *events)
    with pytest.raises(TraceError, match=rf"t.jsonl, line {len(events) + 1}: .*{complaint}"):
        list(read_trace(path))


def test_says_which_file_cannot_be_read_or_written(tmp_path):
    with pytest.raises(TraceError, match=r"cannot read the trace .*missing"):
        list(read_trace(tmp_path / "missing"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\n")
    with pytest.raises(TraceError, match="not UTF-8"):
        list(read_trace(tmp_path / "bytes"))
    with pytest.raises(TraceError, match="cannot write the trace"):
        TraceWriter(tmp_path)


def test_a_cost_curve_comes_back_and_knows_its_figures(tmp_path):
    cost = CostMeasured(2.5, 300, (1, 2, 16), (20.0, 24.0, 50.0))
    (read,) = read_trace(written(tmp_path / "t.jsonl", cost))
    assert read == cost
    assert read.plain_tps == 50.0


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ('"widths":[2,4],"ms":[1,2]', "ascend from 1"),
        ('"widths":[1,4,4],"ms":[1,2,3]', "ascend from 1"),
        ('"widths":[1,4],"ms":[1]', "got 1 times for the widths"),
        ('"widths":[],"ms":[]', "ascend from 1"),
        ('"widths":[1],"ms":[0]', "above 0"),
        ('"widths":[1],"ms":["1"]', "ms="),
        ('"widths":1,"ms":[1]', "not a list"),
    ],
)
def test_refuses_a_cost_curve_that_means_nothing(fields, complaint):
    with pytest.raises(TraceError, match=complaint):
        event_from_json('{"t":"cost","ts":1,"context":3,' + fields + "}")


# ---- channels ----------------------------------------------------------------------------

MARK = EmittedToken(1, "<think>", "plain", 0.5, None, "mark")
THOUGHT = EmittedToken(2, "hm", "accepted", 0.5, 0.25, "reasoning")
CLOSING = EmittedToken(3, "</think>", "accepted", 0.5, 0.25, "mark")
ANSWER = EmittedToken(4, "yes", "bonus", 0.5)
REASONED = (
    GenerationStarted("t", "d"),
    PlainDecoded(1, 0.1, (MARK,), 1.0, 3),
    DraftProposed(2, 0.2, 4, NODES, 1.5),
    DraftVerified(2, 0.3, (1, 2), (THOUGHT, CLOSING, ANSWER), 1.0, 0, 6),
    GenerationFinished(0.4, "stop", "!"),
)


def test_a_token_of_the_answer_is_written_and_read_as_before_channels_existed():
    written = json.loads(event_to_json(PlainDecoded(1, 0.1, (ANSWER,), 1.0, 3)))
    assert written["emit"] == [[4, "yes", "bonus", 0.5, None]]
    line = '{"t":"plain","r":1,"ts":0.1,"emit":[[7,"x","plain",0.5,null]],"ms":1.0,"context":3}'
    assert event_from_json(line).emit == (EmittedToken(7, "x", "plain", 0.5, None, "answer"),)


def test_reasoning_and_answer_are_told_apart_and_no_text_is_lost():
    said = ReplyText()
    for event in REASONED:
        said.add(event)
    assert [event_from_json(event_to_json(event)) for event in REASONED] == [*REASONED]
    assert (said.reasoning, said.answer) == ("hm", "yes!")
    assert said.text == "<think>hm</think>yes!"
    cut = ReplyText()  # text that comes with the end belongs to the channel of the last token
    cut.add(PlainDecoded(1, 0.1, (THOUGHT,), 1.0, 3))
    cut.add(GenerationFinished(0.4, "cancelled", "..."))
    assert (cut.reasoning, cut.answer) == ("hm...", "")
