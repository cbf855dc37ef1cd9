"""Read the settings of one architecture from the metadata of a GGUF file, each checked."""

from pathlib import Path
from typing import Any

from mlxspec.errors import UnsupportedModelError


class Numbers:
    """The metadata of a file under the prefix of its architecture."""

    def __init__(self, path: Path, metadata: dict[str, Any], architecture: str) -> None:
        self._path = path
        self._metadata = metadata
        self._architecture = architecture

    def value(self, key: str) -> Any:
        """Return a value of any kind, or None."""
        return self._metadata.get(f"{self._architecture}.{key}")

    def number(self, key: str, default: float | None = None) -> float:
        """Return a positive number.

        Raises:
            UnsupportedModelError: It is missing without a default, or of another kind.
        """
        value = self.value(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.refusal(key, "a positive number")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """Return a positive integer.

        Raises:
            UnsupportedModelError: It is missing without a default, or of another kind.
        """
        value = self.number(key, default)
        if not isinstance(value, int):
            raise self.refusal(key, "a whole number")
        return value

    def refusal(self, key: str, needed: str) -> UnsupportedModelError:
        """Return the error for a value that is not `needed`."""
        return UnsupportedModelError(
            f"{self._path} has {self._architecture}.{key}={self.value(key)!r:.60}; "
            f"{needed} is needed: choose another file of this model"
        )
