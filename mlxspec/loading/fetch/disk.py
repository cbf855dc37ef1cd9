"""Whether a download fits the disk, asked before it begins."""

import shutil
from pathlib import Path

from mlxspec.errors import ModelNotFoundError

_MB = 1e6


def check_room(folder: Path, n_bytes: int, name: str) -> None:
    """Raise ModelNotFoundError where a folder's disk has less room than a download takes.

    Args:
        folder: Where it goes; need not exist.
        n_bytes: What it takes.
        name: Of what is downloaded.
    """
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if n_bytes > free:
        raise ModelNotFoundError(
            f"{name} takes {n_bytes / _MB:,.0f} MB, and the disk of {folder} has "
            f"{free / _MB:,.0f} MB free: make room there, or choose a smaller model"
        )
