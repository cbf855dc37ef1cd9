"""The cache folder, and small facts about this machine in it, by key, in one JSON file.

They only save time: if the file cannot be read or written, the facts are computed again.
"""

import json
import os
from contextlib import suppress
from os.path import expanduser
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from mlxspec.files import locked


def cache_folder() -> Path:
    """Return the folder for downloads and facts: `MLXSPEC_HOME`, or the user's cache folder."""
    chosen = os.environ.get("MLXSPEC_HOME")
    return Path(expanduser(chosen)) if chosen else user_cache_path("mlxspec")


class Records:
    """The facts in one file."""

    def __init__(self, name: str) -> None:
        self._name = name

    def load(self, key: str) -> dict[str, Any] | None:
        value = self._read().get(key)
        return value if isinstance(value, dict) else None

    def store(self, key: str, value: dict[str, Any]) -> None:
        path = self._path()
        partial = path.with_suffix(".part")
        # a full or read-only disk only means that the fact is computed again
        with suppress(OSError), locked(path.with_suffix(".lock")):
            try:
                partial.write_text(json.dumps(self._read() | {key: value}, indent=1))
                partial.replace(path)  # atomic: no other process sees half a file
            finally:
                partial.unlink(missing_ok=True)

    def all_keys(self) -> list[str]:
        return list(self._read())

    def clear(self) -> None:
        with suppress(OSError):
            self._path().unlink(missing_ok=True)

    def _path(self) -> Path:
        return cache_folder() / self._name

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path().read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}
