"""Which tests take a second or more: those that `tests/slow.txt` names."""

from fnmatch import fnmatchcase
from functools import cache

from tests.support.paths import TESTS

FILE = TESTS / "slow.txt"


def is_slow(nodeid: str) -> bool:
    """Return whether a line of the file means a test.

    Args:
        nodeid: Of pytest, such as "tests/engine/test_held.py::test_one[full-3]".
    """
    name, _, parameters = nodeid.removeprefix("tests/").partition("[")
    patterns = lines().get(name, ())
    return any(fnmatchcase(parameters.removesuffix("]"), pattern) for pattern in patterns)


@cache
def lines() -> dict[str, tuple[str, ...]]:
    """Return the patterns of the parameters by test; "*" stands for all."""
    found: dict[str, tuple[str, ...]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, _, pattern = line.partition(" ")
            found[name] = (*found.get(name, ()), pattern or "*")
    return found
