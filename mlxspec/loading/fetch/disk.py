"""Check, before a download, whether the disk has space for it."""

import shutil
from pathlib import Path

from mlxspec.errors import ModelNotFoundError

_MB = 1e6


def check_room(folder: Path, n_bytes: int, name: str) -> None:
    """Raise ModelNotFoundError if the disk of a folder has less than `n_bytes` of free space.

    The folder need not exist.
    """
    existing = folder.absolute()
    while not existing.exists():  # disk_usage needs a path that exists
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if n_bytes > free:
        raise ModelNotFoundError(
            f"{name} takes {n_bytes / _MB:,.0f} MB, and the disk of {folder} has "
            f"{free / _MB:,.0f} MB free: make room there, or choose a smaller model"
        )
