"""The figures of a reply, against values counted by hand."""

import json
from dataclasses import replace

import pytest

from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
)
from mlxspec.trace.stats import GenerationStats
from tests.traces import make_fake


def token(kind):
    return EmittedToken(1, "x", kind)


def draft(r, *parents):
    sources = ("left", "right")
    nodes = [DraftNode(i, p, 1, "x", 0.5, sources[i % 2]) for i, p in enumerate(parents, 1)]
    return DraftProposed(r, 0.0, 1, tuple(nodes), ms=2.0)


def verdict(r, ts, path, *kinds):
    return DraftVerified(r, ts, path, tuple(token(k) for k in kinds), 10.0, 0, 0)


def three_rounds():
    """A tree whose second branch wins, a chain rejected at once, a plain forward, a full chain."""
    return [
        GenerationStarted("t", "d"),
        PrefillProgress(0.5, 40, 40, reused=10),
        draft(1, 0, 0, 2, 3),
        verdict(1, 1.0, (2, 3), "accepted", "accepted", "corrected"),
        draft(2, 0, 1),
        verdict(2, 1.5, (), "corrected"),
        PlainDecoded(3, 2.0, (token("plain"),), 8.0, 0),
        draft(4, 0, 1),
        verdict(4, 2.5, (1, 2), "accepted", "accepted", "bonus"),
        GenerationFinished(2.6, "stop"),
    ]


@pytest.fixture
def stats():
    stats = GenerationStats()
    for event in three_rounds():
        stats.add(event)
    return stats


def test_counts_forwards_and_tokens(stats):
    assert (stats.rounds, stats.plain_forwards, stats.target_forwards) == (3, 1, 4)
    assert stats.generated_tokens == 8
    assert stats.kinds == {"accepted": 4, "corrected": 2, "plain": 1, "bonus": 1}


def test_counts_drafted_nodes_and_depths(stats):
    assert (stats.drafted, stats.accepted) == (8, 4)
    assert stats.drafted_at_depth == [3, 3, 1]
    assert stats.accepted_at_depth == [2, 2]
    assert stats.length_counts == [1, 0, 2]


def test_names_the_drafter_of_every_kept_node(stats):
    assert stats.sources == {"left": 2, "right": 2}


def test_acceptance_has_two_denominators(stats):
    assert stats.acceptance_rate == 4 / 7  # of 8 nodes two are siblings: 7 depths were drafted
    assert stats.mean_acceptance_length == 1 + 4 / 3
    assert stats.acceptance_by_depth == [2 / 3, 2 / 3]
    assert stats.acceptance_given_reached == [2 / 3, 1.0]


def test_speeds_leave_the_prefill_out(stats):
    assert stats.ttft_s == 1.0
    assert stats.prompt_tps == 30 / 0.5
    assert stats.generation_tps == pytest.approx(8 / 2.1)
    assert stats.draft_s == pytest.approx(0.006)
    assert stats.target_s == pytest.approx(0.038)


def test_a_new_reply_starts_from_nothing(stats):
    stats.add(GenerationStarted("t", "d"))
    assert stats == GenerationStats()


def test_a_reply_that_fails_keeps_its_figures(stats):
    stats.add(GenerationFailed(3.0, "broken"))
    assert (stats.total_s, stats.generated_tokens) == (3.0, 8)


def test_nothing_is_divided_by_zero():
    assert GenerationStats().as_dict()["generation_tps"] == 0.0
    assert GenerationStats().mean_acceptance_length == 1.0


def test_a_verdict_without_its_draft_counts_its_tokens_only():
    stats = GenerationStats()
    stats.add(verdict(5, 1.0, (1, 2), "accepted", "accepted", "bonus"))
    assert (stats.generated_tokens, stats.drafted, stats.accepted) == (3, 0, 0)


def test_a_path_of_unknown_nodes_is_passed_over():
    stats = GenerationStats()
    stats.add(draft(1, 0, 1))
    stats.add(verdict(1, 1.0, (1, 99), "accepted", "accepted"))
    assert stats.accepted_at_depth == [1]


def test_a_draft_is_judged_once():
    stats = GenerationStats()
    stats.add(draft(1, 0))
    stats.add(verdict(1, 1.0, (1,), "accepted", "bonus"))
    stats.add(verdict(1, 1.1, (1,), "accepted", "bonus"))
    assert (stats.drafted, stats.accepted) == (1, 1)


def test_a_node_below_an_unknown_parent_counts_as_a_first_one():
    stats = GenerationStats()
    event = draft(1, 0)
    stats.add(replace(event, nodes=(replace(event.nodes[0], parent=77),)))
    stats.add(verdict(1, 1.0, (1,), "accepted"))
    assert stats.drafted_at_depth == [1]


@pytest.mark.parametrize("name", make_fake.TRACES)
def test_figures_are_ready_for_json(name):
    stats = GenerationStats()
    for event in make_fake.TRACES[name]():
        stats.add(event)
    assert json.loads(json.dumps(stats.as_dict()))["rounds"] == stats.rounds
