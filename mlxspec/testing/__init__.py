"""Tools for authors of drafters: a tiny target, scripted drafters, and a test of new drafters.

    from mlxspec.testing import check_drafter, tiny_engine

    check_drafter(lambda target: MyDrafter())          # raises AssertionError with the fault

    engine = tiny_engine(MyDrafter(), vocab_size=8)    # to step through a reply
    for event in engine.generate([1, 2, 3]):
        print(event)

The target is a real model with random weights and a few tokens. Its engine, cache and sampling are
the same as for any model, and its output distribution can be computed exactly. It needs no download
and no test framework.
"""

from mlxspec.testing.check import DrafterReport, MakeDrafter, check_drafter
from mlxspec.testing.drafters import OracleDrafter, ScriptedDrafter, UniformDrafter
from mlxspec.testing.target import LetterTokenizer, tiny_engine, tiny_model

__all__ = [
    "DrafterReport",
    "LetterTokenizer",
    "MakeDrafter",
    "OracleDrafter",
    "ScriptedDrafter",
    "UniformDrafter",
    "check_drafter",
    "tiny_engine",
    "tiny_model",
]
