"""What drafts can gain with a cost curve, and with which other weights more."""

import re

import pytest

from mlxspec.budget import CostCurve
from mlxspec.device import chips
from mlxspec.measure.cost import RECORDED, gains, gains_text
from mlxspec.trace.events import DraftProposed, DraftVerified, PlainDecoded
from mlxspec.trace.file import read_trace
from tests.support.device_facts import believe_chip
from tests.support.paths import TESTS

ASSETS = TESTS.parent / "assets"
TEXTS = {"prose": ("chat", "sampling", "rotating"), "code": ("code",)}


def rounds(name):
    """The number of accepted nodes among the first n of each round of a recording, by n."""
    draft = None
    for event in read_trace(ASSETS / f"{name}.jsonl"):
        if isinstance(event, DraftProposed):
            draft = event
        elif isinstance(event, PlainDecoded):
            yield lambda n: 0
        elif isinstance(event, DraftVerified):
            probs = {0: 1.0}
            for node in draft.nodes:
                probs[node.index] = probs[node.parent] * node.prob
            order = sorted(list(probs)[1:], key=lambda index: -probs[index])
            yield lambda n, order=order, path=event.path: len(set(order[:n]) & set(path))


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokens_of_a_round_are_those_of_the_recordings(text):
    found = [accepted for name in TEXTS[text] for accepted in rounds(name)]
    for rows, tokens in RECORDED[text].items():
        assert tokens == pytest.approx(
            sum(1 + accepted(rows - 1) for accepted in found) / len(found), abs=0.006
        )


def test_a_gain_is_that_of_the_best_width():
    """4 rows at 1.9 times the cost of one: 1.81 / 1.9 in prose is less than 1."""
    curve = CostCurve({1: 10.0, 2: 19.0, 4: 19.0, 5: 1e4, 32: 1e6})
    assert gains(curve) == pytest.approx([1.0, 3.12 / 1.9, 4 / 1.9])


GAINS = r"(\d+\.\d)(?: \(prose\))?, (\d+\.\d)(?: \(code\))?, (\d+\.\d)"


@pytest.mark.parametrize(
    ("device", "memory_gb", "better"),
    [
        ("Apple M1 Max", 64.0, ["mxfp4", "mxfp8", "float16"]),
        ("Apple M1", 16.0, ["mxfp4", "mxfp8"]),  # 14 GB do not fit in 0.7 of 16
        ("Apple M1", 8.0, ["mxfp4"]),
        ("Apple M4 Pro", 48.0, ["float16"]),
        ("Apple M4", 16.0, []),
        ("AMD EPYC", 512.0, []),
    ],
)
def test_weights_that_gain_more_on_this_chip_are_named_where_they_fit(
    device, memory_gb, better, monkeypatch
):
    believe_chip(device, monkeypatch.setattr)
    chip = chips.chip_of(device) or chips.chip_of("Apple M4")
    own = CostCurve(chip.steps("4-bit").costs)
    text = gains_text(own, "4-bit", 7_000_000_000, memory_gb)
    assert re.findall(r"(\S+) \(\d+\.\d GB\)", text) == better
    values = [float(number) for found in re.findall(GAINS, text) for number in found]
    assert len(values) == 3 * (1 + len(better))
    assert all(code >= values[1] for code in values[1::3])
    assert "\n" not in text


def test_on_an_m1_only_copies_gain_with_affine_weights(monkeypatch):
    believe_chip("Apple M1", monkeypatch.setattr)
    text = gains_text(CostCurve(chips.here().steps("4-bit").costs), "4-bit", 1, 0.0)
    told = "4-bit weights 1.0 (prose), 1.0 (code), 5.3 (copies)"
    assert text == f"gain of drafts over plain decoding: {told}"
