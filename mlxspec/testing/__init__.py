"""For authors of drafters: a tiny target, drafters that follow a script, and a judge of new ones.

    from mlxspec.testing import check_drafter, tiny_engine

    check_drafter(lambda target: MyDrafter())          # raises AssertionError with what is wrong

    engine = tiny_engine(MyDrafter(), vocab_size=8)    # to step through a reply
    for event in engine.generate([1, 2, 3]):
        print(event)

The target is a real one with random weights, over a handful of tokens: its engine, cache and law
are those of any model, nothing is downloaded, and what it says can be summed exactly. Needs no
test framework.
"""

from mlxspec.testing.check import DrafterReport, MakeDrafter, check_drafter
from mlxspec.testing.drafters import KnowingDrafter, ScriptedDrafter, UniformDrafter
from mlxspec.testing.target import LetterTokenizer, tiny_engine, tiny_model

__all__ = [
    "DrafterReport",
    "KnowingDrafter",
    "LetterTokenizer",
    "MakeDrafter",
    "ScriptedDrafter",
    "UniformDrafter",
    "check_drafter",
    "tiny_engine",
    "tiny_model",
]
