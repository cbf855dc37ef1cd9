"""From a chat in the store back to what the screen shows."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.trace.events import GenerationFailed, SpeedupMeasured
from mlxspec_app.conversation.figures import reply_figures, times_plain
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import PlainSpeed
from mlxspec_app.store.recorder import Recorder
from mlxspec_app.store.records import Generation, StoredMessage
from mlxspec_app.store.restore import CUT_OFF, restore
from mlxspec_app.store.traces import ReplyTraces
from tests.support.store_files import exchange, open_writer, path, record
from tests.traces import make_fake

TEXT = "Hello 世界"


@pytest.fixture
def recorder(tmp_path):
    recorder = Recorder(open_writer(tmp_path / "chats.sqlite3"), ReplyTraces(tmp_path, pytest.fail))
    yield recorder
    recorder.close()


def reply_of(recorder, folder):
    return restore(path(recorder), folder)[-1]


def stored(state="finished", text=TEXT, **generation):
    return StoredMessage(2, 1, 1, "assistant", state, text, 1, 1, Generation(**generation))


def recalled(*args, folder=Path("nowhere"), **options):
    return restore([stored(*args, **options)], folder)[0]


def test_a_recorded_reply_comes_back_as_it_was(recorder, tmp_path):
    events = list(make_fake.chat())
    record(recorder, events)
    shown, recollected = fold(events).messages, restore(path(recorder), tmp_path)
    assert [(m.role, m.text) for m in recollected] == [(m.role, m.text) for m in shown]
    for before, after in zip(shown[1::2], recollected[1::2], strict=True):
        assert (after.spans, after.rounds) == (before.spans, before.rounds)
        assert (after.started, after.stats) == (before.started, before.stats)
        assert after.reason == before.reason


def test_without_its_trace_a_reply_keeps_text_ending_settings_and_figures(recorder, tmp_path):
    events = list(make_fake.chat())
    record(recorder, events)
    for trace in tmp_path.glob("*.jsonl"):
        trace.unlink()
    before, after = fold(events).reply, reply_of(recorder, tmp_path)
    assert after.text == before.text
    assert after.rounds == []
    assert all(span.kind is None for span in after.spans)
    assert (after.reason, after.started) == (before.reason, before.started)
    assert after.stats.generated_tokens == before.stats.generated_tokens
    assert after.stats.generation_tps == pytest.approx(before.stats.generation_tps, rel=0.01)


def test_a_trace_that_tells_another_text_is_not_believed(recorder, tmp_path):
    record(recorder, exchange("Hello", "Hi", " there"))
    message = path(recorder)[-1]
    (tmp_path / message.generation.trace).write_text("{broken\n")
    assert reply_of(recorder, tmp_path).rounds == []
    record(recorder, exchange("Bye", "See you"))
    other = path(recorder)[-1].generation.trace
    (tmp_path / message.generation.trace).write_bytes((tmp_path / other).read_bytes())
    first = restore(path(recorder), tmp_path)[1]
    assert (first.text, first.rounds) == ("Hi there", [])


def test_a_trace_that_lacks_the_last_round_gives_the_others(recorder, tmp_path):
    record(recorder, exchange("Hello", "Hi", " there"))
    file = tmp_path / path(recorder)[-1].generation.trace
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-2]))
    reply = reply_of(recorder, tmp_path)
    assert [span.text for span in reply.spans] == ["Hi", " there"]
    assert [span.kind for span in reply.spans] == ["plain", None]
    assert reply.reason == "stop"


def test_a_reply_that_was_cut_off_says_so_and_is_over(recorder, tmp_path):
    record(recorder, list(exchange("Hello", "Hi", " there"))[:-1])
    reply = reply_of(recorder, tmp_path)
    assert (reply.text, reply.reason, reply.error) == ("Hi there", None, CUT_OFF)
    assert reply.is_finished


def test_a_stopped_reply_stays_stopped():
    reply = recalled("partial", reason="cancelled")
    assert (reply.reason, reply.error) == ("cancelled", "")


COMPARED = SpeedupMeasured(2.31, 11.5, 1900, (274, 3400), 40)


@pytest.mark.parametrize("has_trace", [True, False])
def test_the_ratio_to_plain_decoding_is_stored_with_the_reply(recorder, tmp_path, has_trace):
    record(recorder, make_fake.chat(), COMPARED)
    if not has_trace:
        for trace in tmp_path.glob("*.jsonl"):
            trace.unlink()
    reply = reply_of(recorder, tmp_path)
    assert reply.measured == COMPARED
    assert times_plain(reply) == "\u00d72.31 plain"
    assert (reply.plain, reply.num_copied) == (PlainSpeed(11.5, 1900, (274, 3400)), 40)
    assert restore(path(recorder), tmp_path)[1].measured is None  # the reply before has none


def test_a_forked_reply_keeps_its_ratio(recorder, tmp_path):
    record(recorder, make_fake.chat(), COMPARED)
    chat = recorder.writer.fork(path(recorder)[-1].id)
    messages = recorder.writer.path_to(recorder.writer.chat(chat).leaf)
    assert restore(messages, tmp_path)[-1].measured == COMPARED


@pytest.mark.parametrize(
    "kept", [None, 3, {}, {"speedup": "fast"}, {"measured_at": [None]}, {"plain_tps": -1.0}]
)
def test_a_reply_of_an_older_store_has_no_ratio(kept):
    stats = {"generated_tokens": 4, "rounds": 2, "total_s": 2.0, "comparison": kept}
    assert times_plain(recalled(target="t", stats=stats)) == ""


def test_a_ratio_that_comes_after_the_chat_was_deleted_is_dropped(recorder):
    record(recorder, exchange("Hello", "Hi"))
    recorder.writer.delete(recorder.chat)
    recorder.writer.purge()
    record(recorder, COMPARED)
    assert recorder.writer.recent() == []


def test_a_failed_reply_keeps_its_error(recorder, tmp_path):
    record(recorder, list(exchange("Hello", "Hi"))[:-1], GenerationFailed(1.0, "no memory"))
    reply = reply_of(recorder, tmp_path)
    assert (reply.text, reply.reason, reply.error) == ("Hi", None, "no memory")


def test_a_trace_is_looked_for_in_its_folder_alone(tmp_path):
    outside = tmp_path / "outside.jsonl"
    outside.write_text("")
    (tmp_path / "traces").mkdir()
    reply = recalled(trace="../outside.jsonl", folder=tmp_path / "traces")
    assert reply.text == TEXT


numbers = st.integers() | st.floats()
json_values = (
    numbers | st.none() | st.text() | st.lists(numbers) | st.dictionaries(st.text(), numbers)
)
names = st.sampled_from(
    ["device", "sampling", "seed", "rounds", "kinds", "length_counts", "generated_tokens"]
)
mappings = st.dictionaries(names | st.text(), json_values, max_size=4)


@given(mappings, mappings, st.none() | st.text())
def test_whatever_the_store_holds_beside_the_text_the_text_comes_back(settings, stats, reason):
    reply = recalled(target="t", settings=settings, stats=stats, reason=reason)
    assert reply.text == TEXT
    assert reply.is_finished
    assert reply_figures(reply) is not None
