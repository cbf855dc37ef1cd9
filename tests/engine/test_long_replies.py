"""A token leaves nothing behind but its rows: no array, and no lazy graph that refers to the last.

The campaign `growth` asks the same after 20,000 tokens.
"""

import pytest

from tests.support.growth import DRAFTERS, FAMILIES, SeldomDrafts, reply_holds

AT = [16, 80]


def assert_steady(*reply, **options):
    first, last = reply_holds(*reply, at=AT, **options)
    assert last.grows_from(first) == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_tokens_leave_nothing_in_any_family(family):
    assert_steady(family)


@pytest.mark.parametrize("drafter", [name for name in DRAFTERS if name != "none"])
@pytest.mark.parametrize("sampling", ["greedy", "penalties"])
def test_drafted_tokens_leave_nothing(drafter, sampling):
    assert_steady("dense", drafter, sampling=sampling)


@pytest.mark.parametrize("kind", ["rotating", "int8", "rotating-int8"])
@pytest.mark.parametrize("drafter", ["none", "pool"])
def test_nothing_is_left_over_any_cache(drafter, kind):
    assert_steady("dense", drafter, kind, "sampled")


@pytest.mark.parametrize("family", ["hybrid", "window"])
def test_states_and_windows_of_drafted_tokens_leave_nothing(family):
    assert_steady(family, "model", sampling="sampled")


@pytest.mark.parametrize("drafter", ["model", "eagle3", "medusa"])
def test_a_drafter_that_is_seldom_asked_does_not_pile_up_what_it_is_told(drafter):
    assert_steady("dense", drafter, sampling="penalties", budget=SeldomDrafts())
