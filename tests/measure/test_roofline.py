"""The bound that memory sets to plain decoding, and speeds as shares of it."""

import pytest

from mlxspec.measure.cost import Roofline

ROOFLINE = Roofline(gb_per_s=20.0, weight_bytes=500_000_000)


def test_a_forward_takes_as_long_as_its_weights_are_read():
    assert ROOFLINE.least_ms == pytest.approx(25.0)
    assert ROOFLINE.most_tokens_per_s == pytest.approx(40.0)


def test_drafted_speeds_may_pass_the_bound_of_plain_decoding():
    assert ROOFLINE.describe({"none": 10.0, "pool": 50.0}) == (
        "The memory is read at 20.0 GB/s, so a forward over 500 MB of weights takes 25.0 ms or "
        "more, and plain decoding writes at most 40 tokens/s. Reached of that: plain 25%, pool "
        "125%."
    )
    assert "Reached" not in ROOFLINE.describe({})
