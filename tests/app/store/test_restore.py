"""From a chat in the store back to what the screen shows."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.trace.events import GenerationFailed, GenerationFinished, SpeedupMeasured
from mlxspec_app.conversation.figures import reply_figures, speed_words
from mlxspec_app.conversation.fold import fold
from mlxspec_app.store.records import COMPARISON, Generation, StoredMessage
from mlxspec_app.store.restore import CUT_OFF, restore
from tests.support.store_files import exchange, path, record
from tests.traces import make_fake

TEXT = "Hello 世界"
COMPARED = SpeedupMeasured(2.31, 11.5, 1900, (274, 3400), 40)


@pytest.fixture
def traces(tmp_path):
    """Where the recorder keeps its traces."""
    return tmp_path / "traces"


def reply_of(recorder, traces):
    return restore(path(recorder), traces)[-1]


def recalled(folder=Path("nowhere"), reason=None, **generation):
    kept = Generation(reason=reason, **generation)
    return restore([StoredMessage(2, 1, 1, "assistant", "finished", TEXT, 1, 1, kept)], folder)[0]


def lose(traces):
    for trace in traces.glob("*.jsonl"):
        trace.unlink()


def test_a_recorded_reply_comes_back_as_it_was(recorder, traces):
    events = list(make_fake.chat())
    record(recorder, events)
    shown, recollected = fold(events).messages, restore(path(recorder), traces)
    assert [(m.role, m.text) for m in recollected] == [(m.role, m.text) for m in shown]
    for before, after in zip(shown[1::2], recollected[1::2], strict=True):
        assert (after.spans, after.rounds) == (before.spans, before.rounds)
        assert (after.started, after.stats) == (before.started, before.stats)
        assert after.reason == before.reason


def test_without_its_trace_a_reply_keeps_text_ending_settings_and_figures(recorder, traces):
    events = list(make_fake.chat())
    record(recorder, events)
    lose(traces)
    before, after = fold(events).reply, reply_of(recorder, traces)
    assert after.text == before.text
    assert after.rounds == []
    assert all(span.kind is None for span in after.spans)
    assert (after.reason, after.started) == (before.reason, before.started)
    assert after.stats.generated_tokens == before.stats.generated_tokens
    assert after.stats.generation_tps == pytest.approx(before.stats.generation_tps, rel=0.01)


def test_a_trace_that_tells_another_text_is_not_believed(recorder, traces):
    record(recorder, exchange("Hello", "Hi", " there"), exchange("Bye", "See you"))
    first, other = (traces / message.generation.trace for message in path(recorder)[1::2])
    for content in ("{broken\n", other.read_text()):
        first.write_text(content)
        reply = restore(path(recorder), traces)[1]
        assert (reply.text, reply.rounds) == ("Hi there", [])


def test_a_trace_that_lacks_the_last_round_gives_the_others(recorder, traces):
    record(recorder, exchange("Hello", "Hi", " there"))
    file = traces / path(recorder)[-1].generation.trace
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-2]))
    reply = reply_of(recorder, traces)
    assert [(span.text, span.kind) for span in reply.spans] == [("Hi", "plain"), (" there", None)]
    assert reply.reason == "stop"


def test_a_trace_is_looked_for_in_its_folder_alone(recorder, traces):
    record(recorder, exchange("Hello", TEXT))
    name = path(recorder)[-1].generation.trace
    assert recalled(traces, trace=name).rounds
    (traces / "inner").mkdir()
    assert recalled(traces / "inner", trace=f"../{name}").rounds == []


@pytest.mark.parametrize(
    ("end", "reason", "error"),
    [
        ([], None, CUT_OFF),
        ([GenerationFinished(1.0, "cancelled")], "cancelled", ""),
        ([GenerationFailed(1.0, "no memory")], None, "no memory"),
    ],
)
def test_a_reply_is_over_and_says_how_it_ended(recorder, traces, end, reason, error):
    record(recorder, list(exchange("Hello", "Hi", " there"))[:-1], end)
    reply = reply_of(recorder, traces)
    assert (reply.text, reply.reason, reply.error) == ("Hi there", reason, error)
    assert reply.is_finished


# ---- the ratio to plain decoding -----------------------------------------------------------


@pytest.mark.parametrize("has_trace", [True, False])
def test_the_ratio_to_plain_decoding_is_stored_with_the_reply_and_its_forks(
    recorder, traces, has_trace
):
    record(recorder, make_fake.chat(), COMPARED)
    if not has_trace:
        lose(traces)
    reply = reply_of(recorder, traces)
    assert reply.measured == COMPARED
    assert speed_words(reply) == "2.3x the speed"
    assert reply.num_copied == 40
    assert restore(path(recorder), traces)[1].measured is None  # the reply before has none
    fork = recorder.fork_at(len(path(recorder)) - 1)
    assert restore(fork.path, traces)[-1].measured == COMPARED


@pytest.mark.parametrize(
    "kept", [None, 3, {}, {"speedup": "fast"}, {"measured_at": [None]}, {"plain_tps": -1.0}]
)
def test_a_reply_of_an_older_store_has_no_ratio(kept):
    stats = {"generated_tokens": 4, "rounds": 2, "total_s": 2.0, COMPARISON: kept}
    assert speed_words(recalled(target="t", stats=stats)) == ""


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
