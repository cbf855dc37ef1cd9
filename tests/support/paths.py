"""Paths of the repository for tests."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GOLDENS = TESTS / "goldens"
TRACES = TESTS / "traces"
