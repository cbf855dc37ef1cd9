"""What one reply is to be written with is an argument of it, never an attribute put on an engine.

An attribute that is set for a while has to be put back, and what raises in between leaves it. Only
`mlxspec.drafting.engines` completes an engine: a trained drafter is built on its target.
"""

import ast
import re

import pytest

from tests.house.sources import sources, text_of

OWN = {"target", "drafter", "budget", "tokenizer", "name", "weights", "chain_rule", "exact"}
COMPLETES = "mlxspec/drafting/engines.py"
SET = re.compile(rf"engine\.({'|'.join(OWN)})\b[\s,)]*(=(?!=)|in\b|:)")


def swaps(source):
    """The lines that set an attribute of what is called an engine."""
    if not SET.search(source):
        return []
    stored = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    return [
        ast.unparse(node)
        for node in stored
        if isinstance(node.ctx, ast.Store) and node.attr in OWN
        if ast.unparse(node.value).rpartition(".")[2].endswith("engine")
    ]


def test_nobody_sets_an_attribute_of_an_engine():
    paths = sources("mlxspec", "app", "tests", "docs")
    found = {name: swaps(text_of(path)) for name, path in paths.items()}
    assert len(found) > 100
    assert {path: set(lines) for path, lines in found.items() if lines} == {
        COMPLETES: {"engine.drafter"}
    }


@pytest.mark.parametrize(
    "line",
    [
        "site.engine.budget = FixedBudget()",
        "for engine.drafter in drafters: reply()",
        "(engine.drafter,) = made",
    ],
)
def test_one_that_did_would_be_seen(line):
    assert len(swaps(line)) == 1
