"""Where the tests find what lies beside them."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GOLDENS = TESTS / "goldens"
TRACES = TESTS / "traces"
