"""The filters of a corpus, each at its limit."""

import pytest

from mlxspec.train.data.dialogue import DroppedError, check_reply, has_periodic_tail

SPECIAL = frozenset({99})


def cycle(period, length):
    return [index % period for index in range(length)]


@pytest.mark.parametrize(
    ("tokens", "is_loop"),
    [
        *((([50, 51, 52, *cycle(period, 64)]), True) for period in (1, 7, 24)),
        (cycle(25, 200), False),
        (cycle(3, 63), False),
        ([*cycle(3, 100), 50], False),
        ([*cycle(3, 30), 50, *cycle(3, 63)], False),
        ([], False),
    ],
)
def test_the_last_64_tokens_are_a_loop_with_a_period_of_24_or_less(tokens, is_loop):
    assert has_periodic_tail(tokens) == is_loop


def repetitive(num_distinct, num_grams=20):
    """Tokens of which so many 4-grams are distinct: a run of new ones behind a run of one."""
    return [0] * (num_grams - num_distinct + 4) + list(range(1, num_distinct))


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [
        (repetitive(11), None),
        (repetitive(10), "loop"),  # of 4-grams 55 percent have to be distinct
        ([*range(100, 200), *cycle(24, 64)], "loop"),
        ([1, 2, 3], None),
        ([1, 99, 3], "special token"),
        ([], "empty"),
    ],
)
def test_a_reply_is_kept_or_dropped_with_its_fault(tokens, fault):
    if fault is None:
        check_reply(tokens, SPECIAL)
    else:
        with pytest.raises(DroppedError, match=fault):
            check_reply(tokens, SPECIAL)
