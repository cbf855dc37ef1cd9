"""Best-first growth against trees drawn by hand, and learned rates against their formulas."""

from math import exp, log

import pytest

from mlxspec.drafters.search.calibration import HitRate, Mixer, log_odds
from mlxspec.drafters.search.growth import MAX_DEPTH, grow
from tests.support.drafting import Place, shape_of

PRIORS = [((1.0, 0.0), (0.6, 0.0))]  # weight and bias for one estimate, and for several
ALL = (0, 1, 2)


def test_grows_the_most_probable_paths_first_and_a_smaller_budget_their_beginning():
    # 1 (.6) -> 3 (.9), 4 (.1);  2 (.4) -> 5 (.5)
    rows = {(): {2: 0.4, 1: 0.6}, (1,): {3: 0.9, 4: 0.1}, (2,): {5: 0.5}}
    tokens, parents, probs = [9, 1, 3, 2, 5, 4], [-1, 0, 1, 0, 3, 1], [0.6, 0.9, 0.4, 0.5, 0.1]
    for budget in range(6):
        draft = grow(9, Place("p", rows), budget)
        assert shape_of(draft) == (tokens[: budget + 1], parents[: budget + 1], probs[:budget])
        assert draft.sources == ("p",) * budget


def test_grows_no_deeper_than_allowed():
    class Endless(Place):
        def next_probs(self):
            return {1: 1.0}

        def child(self, token):
            return self

    draft = grow(9, Endless("p", {}), 3 * MAX_DEPTH)
    assert draft.tree.n_nodes == MAX_DEPTH + 1


def test_leaves_out_paths_that_will_never_be_accepted():
    assert shape_of(grow(9, Place("p", {(): {1: 0.5, 2: 1e-5}}), 4))[0] == [9, 1]


def test_mixes_log_odds_where_several_drafters_agree():
    mixer = Mixer(PRIORS)
    assert mixer.prob({1: log_odds(0.3)}, ALL) == pytest.approx(0.3)
    odds = exp(0.6 * log(0.8 / 0.2) + 0.6 * log(0.4 / 0.6))
    assert mixer.prob({0: log_odds(0.8), 1: log_odds(0.4)}, ALL) == pytest.approx(odds / (1 + odds))


def test_moves_the_weights_down_the_gradient_of_the_log_loss():
    estimates, step = {0: 1.5, 2: -0.5}, 1e-6
    mixer = Mixer(PRIORS)
    mixer.prob(estimates, ALL)
    weights = mixer._weights[(0, 2), ALL]
    gradient = []
    for index in range(3):
        weights[index] += step
        above = -log(mixer.prob(estimates, ALL))
        weights[index] -= 2 * step
        gradient.append((above + log(mixer.prob(estimates, ALL))) / (2 * step))
        weights[index] += step
    before = list(weights)
    mixer.learn(estimates, ALL, True)
    moved = [new - old for new, old in zip(weights, before, strict=True)]
    assert moved == pytest.approx([-0.02 * slope for slope in gradient], rel=1e-3)


def test_learns_for_each_set_of_drafters_on_its_own():
    mixer = Mixer(PRIORS)
    for _ in range(50):
        mixer.learn({0: 1.0, 1: 1.0}, ALL, False)
    assert mixer.prob({0: 1.0, 1: 1.0}, ALL) < 0.5
    assert mixer.prob({0: 1.0, 1: 1.0}, (0, 1)) > 0.5  # another drafter is silent
    assert mixer.prob({0: 1.0}, ALL) == pytest.approx(1 / (1 + exp(-1.0)))


@pytest.mark.parametrize("prob", [0.0, 1e-12, 1.0, 1 - 1e-12])
def test_log_odds_of_certainty_are_finite(prob):
    assert abs(log_odds(prob)) == 6.0


def test_a_hit_rate_goes_to_the_share_of_hits():
    rate = HitRate(0.9)
    for trial in range(2000):
        rate.record(trial % 4 == 0)
    assert rate.value == pytest.approx(0.25, abs=0.02)
