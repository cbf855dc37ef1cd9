"""The source of the project, each file read and parsed once for all tests of the house."""

import ast
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def sources(*folders: str) -> dict[str, Path]:
    """Return the Python files of folders by their path from the root, in order."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path for path in paths}
