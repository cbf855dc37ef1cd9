"""Where two replies part: the tokens there, the gap that the target sees, and what excuses it."""

import mlx.core as mx
import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.measure import lossless as compare
from mlxspec.measure.lossless import difference_at, first_difference
from mlxspec.params import GenerationParams
from mlxspec.trace.difference import Difference, common_length
from tests.support.reference import reference_logits
from tests.support.tiny import make_engine, tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture
def engine(model):
    return make_engine(model, NoDrafter())


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [([], [], 0), ([1, 2], [1, 2], 2), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([4, 1], [3, 1], 0)],
)
def test_two_replies_are_the_same_up_to_their_first_difference(one, other, expected):
    assert common_length(one, other) == common_length(other, one) == expected


def test_the_gap_is_what_the_target_says_there(model, engine):
    logits = reference_logits(model, [0, 1, 5])[-1]
    best, second = logits.argsort()[::-1][:2]
    found = first_difference(engine, [0, 1], [5, int(best)], [5, int(second)])
    assert (found.index, found.token, found.expected) == (1, best, second)
    assert found.gap == pytest.approx(logits[best] - logits[second], abs=1e-4)
    assert not found.is_near_tie


def test_tokens_that_are_alike_but_not_the_best_are_no_near_tie(model, engine):
    logits = reference_logits(model, [0, 1])[-1]
    *_, third, fourth = logits.argsort()[::-1][:4]
    found = first_difference(engine, [0, 1], [int(third)], [int(fourth)])
    assert found.gap == pytest.approx(logits.max() - logits[fourth], abs=1e-4)


@pytest.mark.parametrize("drift", [0.0, 1e-6])
def test_a_tie_is_a_near_tie_where_something_may_round(engine, drift, monkeypatch):
    monkeypatch.setattr(compare, "near_tie_after", lambda *asked: drift)
    monkeypatch.setattr(engine.target, "next_logits", lambda: mx.ones((24,)))
    assert first_difference(engine, [0], [1], [2], is_foreign=True).is_near_tie
    assert first_difference(engine, [0], [1], [2]).is_near_tie == (drift > 0)


def test_another_project_may_round_by_a_step_where_nothing_drifts_here(engine, monkeypatch):
    """Three steps apart, of the four that are let pass: 2**-6 each, as float16 has it at 16."""
    monkeypatch.setattr(compare, "near_tie_after", lambda *asked: 0.0)
    logits = mx.array([16.0, 16.046875, 15.9] + [0.0] * 21, mx.float16)
    monkeypatch.setattr(engine.target, "next_logits", lambda: logits)
    near, far = (first_difference(engine, [0], [1], [other], is_foreign=True) for other in (0, 2))
    assert (near.gap, near.near_tie) == (3 / 64, 4 / 64)
    assert [near.is_near_tie, far.is_near_tie] == [True, False]


def test_a_reply_that_ends_early_has_no_gap(engine):
    assert first_difference(engine, [0], [1], [1, 2]) == Difference(1, None, 2, None)
    assert first_difference(engine, [0], [1, 2], [1, 2]) is None


def test_what_was_measured_before_is_not_measured_again(engine, monkeypatch):
    monkeypatch.setattr(compare, "near_tie_after", None)
    assert first_difference(engine, [0], [1], [2], near_tie=0.5).near_tie == 0.5


def test_what_another_reply_left_in_the_cache_is_forgotten(model, engine):
    list(engine.generate([3, 4], GenerationParams(max_tokens=4)))
    for keys in engine.target.cache.arrays[::2]:
        keys[:] *= -3.0
    found = first_difference(engine, [3, 4], [5, 6], [5, 7])
    logits = reference_logits(model, [3, 4, 5])[-1]
    assert found.token_logit == pytest.approx(logits[6], abs=1e-4)
    assert found.expected_logit == pytest.approx(logits[7], abs=1e-4)


def test_a_place_is_read_on_from_what_the_target_holds(model, engine, forwards):
    engine.target.observe([0, 1, 5, 9])
    before = forwards.of(engine.target.model)
    found = difference_at(engine, [0, 1], [5], (6, 7), near_tie=0.0)
    assert forwards.of(engine.target.model) - before <= 1
    assert found.token_logit == pytest.approx(reference_logits(model, [0, 1, 5])[-1][6], abs=1e-4)
