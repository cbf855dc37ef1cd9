"""The round that the README shows is the round that runs, statement by statement."""

import ast
import inspect
import re
import textwrap

from mlxspec.reply.round import write_round
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
(SHOWN,) = (
    block
    for block in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    if block.startswith("def write_round(")
)
RUN = textwrap.dedent(inspect.getsource(write_round))


def statements(source):
    """A function as it runs: without its docstring and without comments."""
    (function,) = ast.parse(source).body
    if ast.get_docstring(function):
        del function.body[0]
    return ast.unparse(function)


def test_the_round_of_the_readme_is_the_one_that_runs_and_is_six_lines():
    assert statements(SHOWN) == statements(RUN) != statements(SHOWN.replace("writer", "other"))
    assert len(ast.parse(SHOWN).body[0].body) == 6
