"""The traces of replies beside the store."""

from mlxspec.trace.events import CostMeasured, TurnStarted
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import ChatCleared, ReplyDiscarded
from tests.support.store_files import (
    exchange,
    open_recorder,
    path,
    record,
    reply_events,
    texts_of,
)


def test_every_reply_has_a_trace_that_can_be_replayed(recorder, tmp_path):
    first, second = list(exchange("Hello", "Hi")), list(exchange("Bye", "Ciao", "!"))
    record(recorder, first, second)
    names = [message.generation.trace for message in path(recorder)[1::2]]
    assert [list(read_trace(tmp_path / "traces" / name)) for name in names] == [first, second]


def test_a_regenerated_reply_has_its_turn_in_its_trace(recorder, tmp_path):
    record(recorder, exchange("Hello", "Hi"), ReplyDiscarded(), reply_events("Hey"))
    trace = list(read_trace(tmp_path / "traces" / path(recorder)[-1].generation.trace))
    assert trace == [TurnStarted("user", "Hello"), *reply_events("Hey")]


def test_traces_go_with_their_chat(tmp_path):
    recorder = open_recorder(tmp_path / "chats.sqlite3")
    record(recorder, exchange("Hello", "Hi"))
    deleted = recorder.chat
    record(recorder, ChatCleared(), exchange("Other", "Yes"))
    kept = path(recorder)[-1].generation.trace
    recorder.writer.delete(deleted)
    recorder.close()
    assert [trace.name for trace in (tmp_path / "traces").iterdir()] == [kept]


def test_a_folder_that_takes_no_traces_costs_only_them(tmp_path):
    (tmp_path / "traces").write_text("in the way")
    notices = []
    recorder = open_recorder(tmp_path / "chats.sqlite3", notices.append)
    record(recorder, exchange("Hello", "Hi"), exchange("Bye", "Ciao"))
    assert texts_of(path(recorder)) == ["Hello", "Hi", "Bye", "Ciao"]
    assert len(notices) == 1
    assert "the trace of this reply ends here" in notices[0]
    recorder.close()


def test_what_is_measured_after_a_reply_belongs_to_its_trace(recorder, tmp_path):
    cost = CostMeasured(9.5, 300, (1, 2), (20.0, 21.0))
    record(recorder, cost, exchange("Hello", "Hi"), cost, exchange("Bye", "Ciao"))
    names = [message.generation.trace for message in path(recorder)[1::2]]
    traces = [list(read_trace(tmp_path / "traces" / name)) for name in names]
    assert traces == [[*exchange("Hello", "Hi"), cost], list(exchange("Bye", "Ciao"))]
