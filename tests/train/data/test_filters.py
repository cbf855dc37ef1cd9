"""The filters of a corpus, each at its limit."""

import pytest

from mlxspec.train.data.dialogue import DroppedError, check_reply, distinct_share, has_periodic_tail

SPECIAL = frozenset({99})


def cycle(period, length):
    return [index % period for index in range(length)]


@pytest.mark.parametrize("period", [1, 2, 7, 24])
def test_a_tail_with_a_short_period_is_a_loop(period):
    assert has_periodic_tail([50, 51, 52, *cycle(period, 64)])


@pytest.mark.parametrize(
    "tokens",
    [
        cycle(25, 200),
        cycle(3, 63),
        [*cycle(3, 100), 50],
        [*cycle(3, 30), 50, *cycle(3, 63)],
        list(range(64)),
        [],
    ],
    ids=["long period", "short", "escaped", "too few after a break", "no period", "nothing"],
)
def test_other_tails_are_no_loop(tokens):
    assert not has_periodic_tail(tokens)


@pytest.mark.parametrize(
    ("tokens", "share"),
    [([], 1.0), ([1, 2, 3], 1.0), ([1, 2, 3, 4], 1.0), ([1] * 13, 0.1), ([1, 2] * 4, 0.4)],
)
def test_distinct_share_counts_4_grams(tokens, share):
    assert distinct_share(tokens) == pytest.approx(share)


def repetitive(num_distinct, num_grams=20):
    """Tokens of which so many 4-grams are distinct: a run of new ones behind a run of one."""
    return [0] * (num_grams - num_distinct + 4) + list(range(1, num_distinct))


@pytest.mark.parametrize(("num_distinct", "is_kept"), [(11, True), (10, False)])
def test_a_reply_needs_55_percent_distinct_4_grams(num_distinct, is_kept):
    tokens = repetitive(num_distinct)
    assert distinct_share(tokens) == num_distinct / 20
    if is_kept:
        check_reply(tokens, SPECIAL)
    else:
        with pytest.raises(DroppedError, match="loop"):
            check_reply(tokens, SPECIAL)


def test_a_reply_with_a_periodic_tail_is_dropped():
    tokens = [*range(100, 200), *cycle(24, 64)]
    assert distinct_share(tokens) > 0.7
    with pytest.raises(DroppedError, match="loop"):
        check_reply(tokens, SPECIAL)


def test_a_reply_with_a_special_token_is_dropped():
    check_reply([1, 2, 3], SPECIAL)
    with pytest.raises(DroppedError, match="special token"):
        check_reply([1, 99, 3], SPECIAL)


def test_an_empty_reply_is_dropped():
    with pytest.raises(DroppedError, match="empty"):
        check_reply([], SPECIAL)
