"""What the user is told: errors, and lines and progress of work that takes long.

The message of an error says what was got, what is allowed and what to do.
"""

import warnings
from collections.abc import Callable, Iterable

WARNING = "warning: "
"""Prefix of a line for the user that reports a problem; other lines are news."""

Progress = Callable[[int, int], None]
"""Called with what is done and the total: bytes of a download, tokens or texts of a comparison."""

Say = Callable[[str], None]
"""Called with one line of text for the user."""


def warn(line: str) -> None:
    """Report a line as a Python warning if it tells of a problem; drop any other line."""
    if line.startswith(WARNING):
        warnings.warn(line.removeprefix(WARNING), stacklevel=2)


_PIECE = 3  # letters; fewer are a piece of many names


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for the known name next to a word, or "".

    The last part of a path or hub id is enough, and so is a piece of it.
    """
    from difflib import get_close_matches  # imported here: only an error needs it

    spelled = {part.casefold(): name for name in known for part in (name.rpartition("/")[2], name)}
    wanted = word.casefold()
    pieces = [spelling for spelling in spelled if len(wanted) >= _PIECE and wanted in spelling]
    near = pieces or get_close_matches(wanted, spelled, n=1)
    return f"did you mean {spelled[near[0]]}?" if near else ""


class MlxspecError(Exception):
    """Base of every error that mlxspec raises on purpose."""


class ModelNotFoundError(MlxspecError):
    """No checkpoint has that name: no folder, no file, none in the cache, none to download."""


class UnsupportedModelError(MlxspecError):
    """A checkpoint that exists but cannot run: wrong family, file type or tensors."""


class OtherPortError(UnsupportedModelError):
    """A model that our own port of its type cannot run, though mlx-lm's code may."""


class VocabularyMismatchError(MlxspecError):
    """Target and drafter do not have the same vocabulary."""


class ContextLengthError(MlxspecError):
    """More tokens than the context length of the model.

    Attributes:
        context_length: Largest number of tokens, or 0 where it is not known.
    """

    def __init__(self, message: str, context_length: int = 0) -> None:
        """Make an error with its message."""
        super().__init__(message)
        self.context_length = context_length


class UnsupportedOperationError(MlxspecError):
    """The model or decoder does not support the operation."""


class GrammarError(MlxspecError):
    """No token may follow in an incomplete reply, or the allowed tokens are too costly to find."""


class EngineClosedError(MlxspecError):
    """An engine was used after it was closed."""


class RankLostError(MlxspecError):
    """A process that computes a part of the target cannot start, has ended, or has other files."""


class StaleReplyError(MlxspecError):
    """More events of a reply were requested after its chat had continued without it."""


class NumericsError(MlxspecError):
    """Some logits of a model are NaN or infinite."""


class CacheError(MlxspecError):
    """A cache cannot store, commit or go back to the requested rows."""


class TraceError(MlxspecError):
    """A trace file that cannot be read."""


class ServerError(MlxspecError):
    """A server that does not answer, or does not answer like one of mlxspec."""
