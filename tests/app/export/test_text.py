"""Markdown and CSV, and what all exports share: replies, spans by round, total figures."""

import csv as reader
import io
import math
import re
import unicodedata
from dataclasses import replace

import pytest

from mlxspec.errors import TraceError
from mlxspec.trace.events import DraftVerified, GenerationFinished, TurnStarted
from mlxspec.trace.stats import total
from mlxspec_app.export import csv, markdown
from mlxspec_app.export.filing import FORMATS
from mlxspec_app.export.recording import Recording, written_by_round
from tests.support import export_traces, hostile_traces
from tests.traces import make_fake


def rows_of(recording):
    return list(reader.DictReader(io.StringIO(csv.render(recording))))


# ---- Markdown ------------------------------------------------------------------------------


def test_markdown_holds_who_said_what_and_a_table_of_figures_for_each_reply():
    recording = export_traces.chat()
    made = markdown.render(recording)
    at = 0
    for message in recording.messages:
        at = made.index(message.text, at) + len(message.text)
    headings = [line for line in made.splitlines() if line.startswith("## ")]
    assert headings == ["## You", "## SmolLM2-135M-Instruct"] * 2
    assert made.count("| figure | value |") == 2
    for reply in recording.replies:
        assert f"| mean acceptance length | {reply.stats.mean_acceptance_length:.2f} " in made
        assert f"| acceptance rate | {reply.stats.acceptance_rate:.0%} " in made
    assert "nodes" not in made


def test_a_fence_that_a_reply_leaves_open_does_not_swallow_the_table():
    made = markdown.render(export_traces.saying("```python\nx = 1"))
    assert "x = 1!\n```\n\n| figure" in made


def test_names_of_a_recording_are_text_in_markdown():
    evil = "x\n# head\n<script>a</script> [l](http://e) ![i](u) |c| `d` *e* &lt; \\<b> \r\u2028"
    lines = markdown.render(Recording.of("x", hostile_traces.events("said", name=evil))).split("\n")
    headings = [line for line in lines if line.startswith("#")]
    assert headings[:2] == ["## System", "## You"]
    assert len(headings) == 5
    assert all(line.startswith("## x # head") for line in headings[2:])
    named = [*headings[2:], *(line for line in lines if line.startswith("| drafter"))]
    assert len(named) == 5
    for line in named:
        bare = re.sub(r"\\[\\`*\[\]<>|&]", "", line.removeprefix("| drafter |").removesuffix("|"))
        assert not set(bare) & set("`*[]<>|&\\\r\u2028")


def test_text_is_as_it_was_said_in_markdown_and_what_it_was_cut_off_with_is_no_markup():
    said = "a\tb\n\n<b>*c*</b> | d\n"
    made = markdown.render(Recording.of("x", hostile_traces.events(said, name="n")))
    assert f"\n\n{said}" in made
    assert "*The reply was cut off: a b \\<b\\>\\*c\\*\\</b\\> \\| d*" in made


# ---- CSV -----------------------------------------------------------------------------------


def test_csv_has_a_row_for_every_round_and_adds_up_to_the_statistics():
    recording = export_traces.chat()
    rows = rows_of(recording)
    for number, reply in enumerate(recording.replies, 1):
        own = [row for row in rows if row["reply"] == str(number)]
        assert [row["round"] for row in own] == [str(n + 1) for n in range(len(reply.rounds))]
        assert sum(int(row["accepted_tokens"]) for row in own) == reply.stats.accepted
        assert sum(int(row["drafted_nodes"]) for row in own) == reply.stats.drafted
        assert sum(int(row["emitted_tokens"]) for row in own) == reply.stats.generated_tokens
        draft_ms = sum(float(row["draft_ms"]) for row in own)
        assert draft_ms == pytest.approx(reply.stats.draft_s * 1e3, abs=0.1)


def test_csv_names_the_columns_and_their_units():
    row = rows_of(export_traces.saying("x"))[0]
    assert row == {
        "reply": "1",
        "round": "1",
        "time_s": "1.500000",
        "drafted_nodes": "2",
        "draft_depth_tokens": "1",
        "accepted_tokens": "1",
        "emitted_tokens": "2",
        "ended_by": "bonus",
        "draft_ms": "1.000",
        "target_ms": "40.000",
        "rolled_back_rows": "1",
        "context_tokens": "12",
        "sources": "suffix:1",
    }


def test_csv_holds_no_text_of_the_model():
    assert "=cmd" not in csv.render(export_traces.saying("=cmd()", asked="=cmd()"))


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=1+1", "'=1+1:1"),
        ("+1+1", "'+1+1:1"),
        ("-1+1", "'-1+1:1"),
        ("@SUM(1)", "'@SUM(1):1"),
        ("\t=1+1", "'    =1+1:1"),
        ("\r=1+1", "'␍=1+1:1"),
        ("\n=1+1", "' =1+1:1"),
        (" =1+1", "' =1+1:1"),
        ("\uff1d1+1", "'\uff1d1+1:1"),
        ("a;=1+1", "a,=1+1:1"),
        *((name, f"{name}:1") for name in ("suffix", "org/model-2", "a=b", "x@y", "it's")),
    ],
)
def test_a_name_that_is_a_formula_and_no_other_is_marked_as_text_in_csv(name, cell):
    recording = Recording.of("x", hostile_traces.events("said", name=name))
    assert [row["sources"] for row in rows_of(recording)] == [cell, "", "", cell]
    assert not set(csv.render(recording)) & set(";\t\r")


def test_numbers_of_csv_stay_numbers_also_below_zero():
    late = [
        replace(event, ts=-1.5) if isinstance(event, DraftVerified) else event
        for event in hostile_traces.events(name="=1+1")
    ]
    for row in rows_of(Recording.of("x", late)):
        for name in row.keys() - {"ended_by", "sources"}:
            assert math.isfinite(float(row[name])), name
    assert rows_of(Recording.of("x", late))[0]["time_s"] == "-1.500000"


# ---- what they share -----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_reply_that_is_cut_off_anywhere_can_be_exported(name):
    events = make_fake.tree()
    for end in (2, 5, 6, 7, len(events) - 1):
        assert FORMATS[name].render(Recording.of("cut", events[:end]))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_trace_that_begins_in_the_middle_can_be_exported_and_always_gives_the_same(name):
    verdicts = [event for event in make_fake.tree() if isinstance(event, DraftVerified)]
    made = FORMATS[name].render(Recording.of("torn", verdicts))
    assert made == FORMATS[name].render(Recording.of("torn", verdicts)) != ""


def test_a_trace_without_a_reply_is_refused():
    with pytest.raises(TraceError, match="has no reply to export"):
        Recording.of("talk", [TurnStarted("user", "hello?")])


def test_text_held_back_to_the_end_belongs_to_the_last_token():
    events = export_traces.events_saying(["a"], "?")
    recording = Recording.of("t", [*events[:-1], GenerationFinished(1.0, "stop", text="rest")])
    written = written_by_round(recording.replies[0])
    assert [(position, span.text) for position, span in written[-1].tokens] == [
        (0, "a"),
        (1, "!"),
        (1, "rest"),
    ]


def test_a_token_without_text_keeps_the_places_of_the_others():
    written = written_by_round(export_traces.saying("", "b").replies[0])
    assert [[position for position, _ in round_.tokens] for round_ in written] == [[1], [0, 1]]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_export_of_a_hostile_recording_holds_a_control(name):
    made = FORMATS[name].render(Recording.of("x", hostile_traces.events()))
    found = {char for char in made if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")}
    assert found <= {"\n"}
    assert "\u202e" not in made


def test_totals_are_those_of_all_replies_as_one():
    first, second = (reply.stats for reply in export_traces.chat().replies)
    whole = total([first, second])
    assert whole.generated_tokens == first.generated_tokens + second.generated_tokens
    assert sum(whole.kinds.values()) == whole.generated_tokens
    both = zip(first.accepted_at_depth, second.accepted_at_depth, strict=True)
    assert whole.accepted_at_depth == [a + b for a, b in both]
    accepted, rounds = first.accepted + second.accepted, first.rounds + second.rounds
    assert whole.mean_acceptance_length == pytest.approx(1 + accepted / rounds)
