"""Acceptance along a stored text: chains by hand, and by brute force over random answers."""

import numpy as np
import pytest

from mlxspec.errors import MlxspecError
from mlxspec.train.objective import chain_figures, chain_matches, runs
from tests.support.training import mean_chain


def bools(*rows):
    return np.array([[mark == "x" for mark in row] for row in rows])


def test_runs_start_at_positions_with_enough_others_before_a_gap():
    places = np.array([3, 4, 5, 9, 10, 12])
    assert runs(places, 0).tolist() == [0, 1, 2, 3, 4, 5]
    assert runs(places, 1).tolist() == [0, 1, 3]
    assert runs(places, 2).tolist() == [0]
    assert runs(places, 9).tolist() == []


def test_a_chain_of_the_last_tokens_of_an_answer_does_not_go_on_in_the_next():
    places = np.array([3, 4, 5, 9, 10])
    hits = list(bools("xxx.x", "x.xx.", "xxxxx"))
    assert chain_matches(places, hits[:2]).tolist() == bools("xx.", ".x.").tolist()
    assert chain_matches(places, hits).tolist() == bools("x", ".", "x").tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_is_that_of_all_chains_one_by_one(seed):
    draw = np.random.default_rng(seed)
    right = draw.random((3, 80)) < 0.7
    places = np.flatnonzero(draw.random(80) < 0.8)
    matches = chain_matches(places, [row[places] for row in right])
    figures = chain_figures([matches])
    assert figures["mean_acceptance_length"] == pytest.approx(mean_chain(right, places.tolist()))


def test_without_a_chain_the_error_says_what_to_make():
    for matches in ([], [np.zeros((4, 0), bool)]):
        with pytest.raises(MlxspecError, match="mlxspec train data"):
            chain_figures(matches)
