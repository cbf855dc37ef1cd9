"""Every line of the file of slow tests names a test that is there."""

import re

import pytest

from tests.support.paths import TESTS
from tests.support.slow import is_slow, lines


def test_every_line_names_a_test():
    lost = []
    for name in lines():
        file, _, function = name.partition("::")
        text = (TESTS / file).read_text(encoding="utf-8")
        if not re.search(rf"def {function}\(", text):
            lost.append(name)
    assert not lost


@pytest.mark.parametrize(
    ("parameters", "slow"), [("[pool-full]", False), ("[pool-int8]", True), ("[model-full]", True)]
)
def test_a_pattern_chooses_by_the_parameters(parameters, slow):
    name = "tests/engine/test_real_model.py::test_drafting_never_changes_a_greedy_reply"
    assert is_slow(name + parameters) is slow
