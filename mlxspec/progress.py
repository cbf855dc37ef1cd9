"""How work that takes long reports to its caller: bytes done, and lines for the user."""

import warnings
from collections.abc import Callable

from mlxspec.errors import WARNING

Progress = Callable[[int, int], None]
"""Called with what is done and the total: bytes of a download, tokens or texts of a comparison."""

Say = Callable[[str], None]
"""Called with one line of text for the user."""


def warn(line: str) -> None:
    """Report a line as a Python warning if it tells of a problem; drop any other line."""
    if line.startswith(WARNING):
        warnings.warn(line.removeprefix(WARNING), stacklevel=2)
