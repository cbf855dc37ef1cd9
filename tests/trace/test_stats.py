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
        PlainDecoded(3, 2.0, (replace(token("plain"), channel="reasoning"),), 8.0, 0),
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


def test_figures_are_those_counted_by_hand(stats):
    found = stats.as_dict()
    counted = {
        "rounds": 3,
        "plain_forwards": 1,
        "target_forwards": 4,
        "generated_tokens": 8,
        "reasoning_tokens": 1,
        "kinds": {"accepted": 4, "corrected": 2, "plain": 1, "bonus": 1},
        "drafted": 8,
        "accepted": 4,
        "drafted_at_depth": [3, 3, 1],
        "accepted_at_depth": [2, 2],
        "length_counts": [1, 0, 2],
        "sources": {"left": 2, "right": 2},
        "acceptance_rate": 4 / 7,  # of 8 nodes two are siblings: 7 depths were drafted
        "mean_acceptance_length": 1 + 4 / 3,
        "acceptance_by_depth": [2 / 3, 2 / 3],
        "acceptance_given_reached": [2 / 3, 1.0],
        "ttft_s": 1.0,
        "prompt_tps": 30 / 0.5,  # the reused tokens left out
        "generation_tps": 8 / 2.1,  # the prefill left out
        "draft_s": 0.006,
        "target_s": 0.038,
    }
    for name, value in counted.items():
        expected = value if isinstance(value, dict) else pytest.approx(value)
        assert found[name] == expected, name


def test_a_failure_keeps_the_figures_and_a_new_reply_starts_from_nothing(stats):
    stats.add(GenerationFailed(3.0, "broken"))
    assert (stats.total_s, stats.generated_tokens) == (3.0, 8)
    stats.add(GenerationStarted("t", "d"))
    assert stats == GenerationStats()
    assert stats.as_dict()["generation_tps"] == 0.0
    assert stats.mean_acceptance_length == 1.0


ORPHAN = replace(draft(1, 0), nodes=(replace(draft(1, 0).nodes[0], parent=77),))


@pytest.mark.parametrize(
    ("events", "figures"),
    [
        # A verdict without its draft counts its tokens only.
        ([verdict(5, 1.0, (1, 2), "accepted", "bonus")], {"generated_tokens": 2, "drafted": 0}),
        # A path of unknown nodes is passed over; a node below one counts as a first one.
        ([draft(1, 0, 1), verdict(1, 1.0, (1, 99), "accepted")], {"accepted_at_depth": [1]}),
        ([ORPHAN, verdict(1, 1.0, (1,), "accepted")], {"drafted_at_depth": [1]}),
        # A draft is judged once.
        ([draft(1, 0), *[verdict(1, 1.0, (1,), "bonus")] * 2], {"drafted": 1, "accepted": 1}),
    ],
)
def test_what_a_broken_trace_lacks_is_not_counted(events, figures):
    stats = GenerationStats()
    for event in events:
        stats.add(event)
    assert figures.items() <= stats.as_dict().items()


@pytest.mark.parametrize("name", make_fake.TRACES)
def test_figures_are_ready_for_json(name):
    stats = GenerationStats()
    for event in make_fake.TRACES[name]():
        stats.add(event)
    assert json.loads(json.dumps(stats.as_dict()))["rounds"] == stats.rounds
