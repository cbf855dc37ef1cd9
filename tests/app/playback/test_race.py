"""The race between two recorded runs: the clock, who leads, and whether they agree."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.errors import TraceError
from mlxspec.trace.events import GenerationStarted, PrefillProgress, TurnStarted
from mlxspec.trace.file import TraceWriter
from mlxspec_app.conversation.fold import fold
from mlxspec_app.playback.compare import answers, compare
from mlxspec_app.playback.race import Race, Track, acceptance, lead, open_race
from mlxspec_app.playback.timeline import Timeline
from mlxspec_cli.main import main
from tests.support.app_driver import Clock
from tests.support.paths import TRACES
from tests.support.race_runs import decoded_plainly, ended_after, with_meta, with_token
from tests.traces import make_fake

CHAT, TREE = make_fake.chat(), make_fake.tree()
PLAIN = decoded_plainly(TREE)
NUM_TOKENS = len(answers(TREE)[0].reply.tokens)
SAMPLED = {"lossless": "sampled", "sampling": {"temperature": 0.7}}
EXAMPLES = settings(max_examples=15)


def racing(a, b):
    clock = Clock()
    return Race([Track("A", a), Track("B", b)], clock), clock


def said(a, b):
    verdict = compare(a, b)
    return verdict.kind, verdict.line


@pytest.mark.parametrize("name", make_fake.TRACES)
def test_runs_with_the_same_tokens_are_identical(name):
    events = make_fake.TRACES[name]()
    total = sum(len(answer.reply.tokens) for answer in answers(events))
    line = f"identical: {total} of {total} tokens"
    assert said(events, decoded_plainly(events)) == ("identical", line)


@given(st.integers(0, NUM_TOKENS - 1))
@EXAMPLES
def test_the_first_difference_is_found_wherever_it_is(place):
    changed = with_token(PLAIN, place, -1, " boat")
    ours = answers(TREE)[0].reply.emitted[place].text.strip(" ").replace("\n", "↵") or "␣"
    kind, line = said(TREE, changed)
    assert kind == "differs"
    assert line == f'the texts part after {place} tokens: A has "{ours}", B has "boat"'


def test_tokens_decide_and_not_how_they_look():
    same_text = answers(PLAIN)[0].reply.emitted[3].text
    kind, line = said(TREE, with_token(PLAIN, 3, -1, same_text))
    assert (kind, line.split(":")[0]) == ("differs", "the texts part after 3 tokens")


def test_a_difference_in_a_later_reply_is_counted_over_all_of_them():
    first = len(answers(CHAT)[0].reply.tokens)
    changed = with_token(decoded_plainly(CHAT), first + 4, -1, "x")
    assert f"part after {first + 4} tokens:" in compare(CHAT, changed).line


@given(st.integers(1, NUM_TOKENS - 1), st.sampled_from(["length", "cancelled", "context", None]))
@EXAMPLES
def test_a_run_that_was_cut_short_is_identical_as_far_as_it_goes(num_tokens, reason):
    kind, line = said(TREE, ended_after(PLAIN, num_tokens, reason))
    assert kind == "identical"
    assert line.startswith(f"identical: {num_tokens} of {num_tokens} tokens, then B ended ")


@given(st.integers(1, NUM_TOKENS - 1))
@EXAMPLES
def test_a_run_that_ends_by_itself_where_the_other_goes_on_differs(num_tokens):
    kind, line = said(ended_after(PLAIN, num_tokens, "stop"), TREE)
    assert kind == "differs"
    assert f"after {num_tokens} tokens: A has its end, B has " in line


@pytest.mark.parametrize(
    ("seed", "token", "kind", "line"),
    [
        (99, " boat", "sampled", "both keep the target's distribution (sampled): texts may differ"),
        (99, None, "identical", f"identical: {NUM_TOKENS} of {NUM_TOKENS} tokens"),
        (11, None, "identical", f"identical: {NUM_TOKENS} of {NUM_TOKENS} tokens (one seed)"),
    ],
)
def test_sampled_runs_may_differ_and_are_identical_where_their_tokens_are(seed, token, kind, line):
    ours, theirs = with_meta(TREE, **SAMPLED), with_meta(PLAIN, **SAMPLED, seed=seed)
    place = 3 if token else NUM_TOKENS
    assert said(ours, with_token(theirs, place, -1, token)) == (kind, line)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": "other"}, 'different target ("SmolLM2-135M-Instruct" and "other")'),
        ({"weights": "4-bit"}, 'different weights ("float32" and "4-bit")'),
        ({"cache": "rotating 64"}, 'different cache ("full" and "rotating 64")'),
        (SAMPLED, 'one is "greedy" and the other "sampled"'),
        ({"sampling": {"repetition_penalty": 1.2}}, "different settings (repetition_penalty)"),
    ],
)
def test_what_decides_the_text_has_to_be_the_same(changes, reason):
    expected = ("incomparable", f"not compared: {reason}")
    assert said(TREE, with_meta(PLAIN, **changes)) == expected


def test_what_does_not_decide_a_greedy_text_may_differ():
    theirs = with_meta(PLAIN, device="M4", seed=3, sampling={"temperature": 0.0}, drafter="x")
    assert compare(TREE, theirs).kind == "identical"


def test_other_prompts_are_not_compared_and_unrecorded_ones_are_named_as_a_gap():
    asked = [TurnStarted("user", "Why?"), *TREE[1:]]
    line = 'not compared: different prompts ("What is a draft tree?" and "Why?")'
    assert said(TREE, asked) == ("incomparable", line)
    assert "nothing" in compare(TREE, TREE[1:]).line
    assert compare(CHAT, CHAT[: len(CHAT) // 3]).kind == "incomparable"
    bare = [event for event in TREE if not isinstance(event, TurnStarted)]
    kind, line = said(bare, decoded_plainly(bare))
    assert kind == "identical"
    assert line.endswith("(prompts not recorded, 17 tokens each)")
    longer = [replace(e, total=99) if isinstance(e, PrefillProgress) else e for e in bare]
    assert compare(bare, longer).line == "not compared: different prompts (17 and 99 tokens)"


@given(st.lists(st.integers(0, len(CHAT)), max_size=4), st.randoms(use_true_random=False))
@EXAMPLES
def test_any_two_recordings_get_a_verdict_in_one_line(cuts, rng):
    whole = [rng.choice([CHAT, TREE, PLAIN]) for _ in range(2)]
    runs = [events[: rng.choice([*cuts, len(events)])] for events in whole]
    assert "\n" not in compare(*runs).line


@given(st.lists(st.floats(0, 6), max_size=6))
@EXAMPLES
def test_both_runs_are_where_their_recording_was_at_that_time(times):
    race, _ = racing(TREE, PLAIN)
    for now in times:
        race.go_to(now)
        for track, events in zip(race.tracks, (TREE, PLAIN), strict=True):
            laid_out = Timeline(events)
            expected = fold(laid_out.events(0, laid_out.reached_at(min(now, race.duration))))
            assert [m.text for m in track.state.messages] == [m.text for m in expected.messages]


def test_the_clock_is_one_for_both():
    race, clock = racing(TREE, PLAIN)
    race.playhead.change_speed("slower")
    clock.now += 1.0
    race.tick()
    a, b = race.tracks
    assert a.at == b.at == 0.5
    assert a.tokens > b.tokens > 0
    tokens = [a.tokens, b.tokens]
    race.playhead.paused = True
    clock.now += 1.0
    race.tick()
    assert [a.at, b.at, a.tokens, b.tokens] == [0.5, 0.5, *tokens]


def test_a_move_stops_at_every_round_of_either_run():
    race, _ = racing(TREE, PLAIN)
    ends = {track.timeline.time_of(m.end) for track in race.tracks for m in track.timeline.rounds}
    seen = []
    while not race.is_over:
        race.move(1)
        seen.append(race.playhead.now)
    assert set(seen) - {race.duration} <= ends
    assert len(seen) >= len(ends)
    race.move(-1)
    assert race.playhead.now == seen[-2]


def test_a_track_reports_what_the_engine_counted():
    race, _ = racing(TREE, PLAIN)
    race.go_to(race.duration)
    stats = fold(TREE).reply.stats
    a, b = race.tracks
    assert (a.tokens, a.total) == (stats.generated_tokens, stats.generated_tokens)
    assert a.stats.generation_tps == pytest.approx(stats.generation_tps)
    assert acceptance(a.stats) == f"mean length {stats.mean_acceptance_length:.2f}"
    assert acceptance(b.stats) == "no drafts"


def test_who_leads_is_said_all_along():
    race, _ = racing(TREE, PLAIN)
    lines = [lead(race.tracks)]
    while not race.is_over:
        race.move(1)
        lines.append(lead(race.tracks))
    assert lines[0] == "reading the prompt"
    assert lines[1].startswith("with guesses leads by ")
    assert lines[-2] == "with guesses is done, the other has 1 token to go"
    assert lines[-1].startswith("with guesses finished 2.71 s earlier, at 3.0x the speed")


def test_the_same_run_twice_is_level_and_a_lead_of_one_token_in_the_singular():
    race, _ = racing(TREE, TREE)
    race.go_to(race.duration)
    assert lead(race.tracks).startswith("a tie: both finished after ")
    race.go_to(1.0)
    for track, tokens in zip(race.tracks, (5, 6), strict=True):
        track.stats.generated_tokens = tokens
    assert lead(race.tracks) == "B (EAGLE-3 head, tree) leads by 1 token"


def test_a_difference_names_the_runs_for_what_they_do():
    race, _ = racing(ended_after(PLAIN, 3, "stop"), TREE)
    line = race.agreement.line
    assert line.startswith("the texts part after 3 tokens: model alone has its end, with guesses")


def write(path, events):
    with TraceWriter(path) as writer:
        for event in events:
            writer.write(event)
    return str(path)


def test_the_command_prints_figures_and_verdict_where_there_is_no_terminal(tmp_path, capsys):
    plain = write(tmp_path / "plain.jsonl", PLAIN)
    assert main(["race", str(TRACES / "tree.jsonl"), plain]) == 0
    lines = capsys.readouterr().out.splitlines()
    about = "SmolLM2-135M-Instruct, EAGLE-3 head, tree"
    assert lines[0].startswith(f"with guesses: {about}: {NUM_TOKENS} tokens")
    assert lines[1].startswith("model alone: ")
    assert "with guesses finished" in lines[2]
    assert lines[3] == f"identical: {NUM_TOKENS} of {NUM_TOKENS} tokens"


@pytest.mark.parametrize("other", [with_token(PLAIN, 2, -1, "x"), CHAT])
def test_the_command_fails_where_the_texts_differ_or_cannot_be_compared(tmp_path, other, capsys):
    path = write(tmp_path / "other.jsonl", other)
    assert main(["race", "--plain", str(TRACES / "tree.jsonl"), path]) == 1
    assert capsys.readouterr().err == ""


def test_a_missing_file_is_an_error_in_one_line_and_a_trace_without_a_reply_is_refused(
    tmp_path, capsys
):
    assert main(["race", "no-such-file", "no-such-file"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    path = write(tmp_path / "empty.jsonl", [GenerationStarted("t", "d")])
    with pytest.raises(TraceError, match="has no token of a reply"):
        open_race([TRACES / "tree.jsonl", path], Clock())


def test_names_from_a_trace_cannot_move_the_cursor():
    track = Track("A", with_meta(TREE, drafter="\x1b[2J", target="\x1b[H"))
    assert "\x1b" not in track.drafter + track.target
    assert "\x1b" not in compare(TREE, with_meta(TREE, target="\x1b[H")).line
    assert "\x1b" not in compare(TREE, with_token(TREE, 0, -1, "\x1b[2J")).line
