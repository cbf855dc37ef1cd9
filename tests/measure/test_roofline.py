"""The bound that memory sets to plain decoding, and speeds as shares of it."""

from mlxspec.measure.cost import roofline_text


def test_drafted_speeds_may_pass_the_bound_of_plain_decoding():
    assert roofline_text(20.0, 500_000_000, {"none": 10.0, "pool": 50.0}) == (
        "The memory is read at 20.0 GB/s, so a forward over 500 MB of weights takes 25.0 ms or "
        "more, and plain decoding writes at most 40 tokens/s. Reached of that: plain 25%, pool "
        "125%."
    )
    assert "Reached" not in roofline_text(20.0, 500_000_000, {})
