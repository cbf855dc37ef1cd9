"""The table of Apple's chips: which there are, what they lack, and what rows cost on them."""

import pytest

from mlxspec.budget import CostCurve
from mlxspec.device import backend, chips
from tests.support.device_facts import believe_chip


@pytest.mark.parametrize(
    ("device", "name", "generation", "has_bfloat16"),
    [
        ("Apple M1", "M1", 13, False),
        ("Apple M1 Ultra", "M1 Ultra", 13, False),
        ("Apple M2 Pro", "M2 Pro", 14, False),
        ("Apple M3 Max", "M3 Max", 15, True),
        ("Apple M4", "M4", 16, True),
        ("Apple M5", "M5", 17, True),
        ("Apple M6 Max", "M6 Max", 18, True),
    ],
)
def test_a_chip_is_known_by_its_name(device, name, generation, has_bfloat16):
    """The GPUs are applegpu_g13 (M1), g14, g15 and so on; bfloat16 came with the third."""
    chip = chips.chip_of(device)
    assert (chip.name, chip.generation, chip.has_bfloat16) == (name, generation, has_bfloat16)


@pytest.mark.parametrize(
    "device", ["Apple M7", "Apple M11", "Apple M0", "Apple Paravirtual device", "AMD M4 Pro", ""]
)
def test_a_device_of_no_table_is_no_chip(device):
    assert chips.chip_of(device) is None


@pytest.mark.parametrize(
    ("device", "weights", "costs"),
    [
        ("Apple M1 Max", "4-bit", {2: 2, 3: 3, 5: 5, 6: 6, 16: 6, 32: 6, 33: 12, 64: 12}),
        ("Apple M2", "8-bit, layers 0-15", {4: 4, 6: 6, 32: 6}),
        ("Apple M2 Ultra", "4-bit", {5: 5, 11: 11, 12: 12, 32: 12}),
        ("Apple M1", "mxfp4 4-bit", {2: 1.54, 4: 2.86, 6: 6, 32: 6}),
        ("Apple M2 Ultra", "nvfp4 4-bit in float16", {2: 1.54, 4: 2.86}),
        ("Apple M1", "float16 from bfloat16", {2: 2, 16: 2, 32: 2}),
        ("Apple M3 Pro", "4-bit", {2: 1, 8: 2.5, 13: 3.94, 32: 3.94}),
        ("Apple M3", "mxfp8 8-bit", {2: 1, 8: 2.5}),
        ("Apple M4 Max", "4-bit", {4: 1.47, 8: 2.69, 13: 4.5, 32: 4.5}),
        ("Apple M3 Ultra", "4-bit", {4: 1, 6: 1.28, 8: 1.57, 12: 3.4, 32: 3.4}),
        ("Apple M5 Max", "4-bit", {3: 1.12, 5: 1.48, 8: 2.25, 12: 3.2, 32: 3.5}),
        ("Apple M6", "4-bit", {5: 1.48, 32: 3.5}),
        ("Apple M6", "bfloat16", {2: 1.15, 15: 1.15, 16: 2, 32: 2}),
    ],
)
def test_rows_cost_what_was_published_for_the_chip_and_the_weights(device, weights, costs):
    curve = CostCurve(chips.chip_of(device).steps(weights).costs)
    assert {rows: curve.raw(rows) for rows in costs} == pytest.approx(costs)


@pytest.mark.parametrize("weights", ["float32", "float32 from 4-bit"])
def test_of_weights_that_nobody_measured_nothing_is_known(weights):
    assert chips.chip_of("Apple M3").steps(weights) is None


def test_a_cpu_is_no_chip(monkeypatch):
    believe_chip("Apple M1", monkeypatch.setattr)
    assert chips.here().name == "M1"
    monkeypatch.setattr(backend, "is_cpu", lambda: True)
    assert chips.here() is None
