"""Files and folders that their owner alone may read, whatever is usual for new ones here."""

import os
from pathlib import Path

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing; one that is there stays as it is."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_private_folder(folder.parent)
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Make an empty file; one that is there stays as it is."""
    path.touch(mode=_FILE_MODE)


def private_opener(path: str, flags: int) -> int:
    """Open as `open` does when it is given this opener: a file that is made is private."""
    return os.open(path, flags, _FILE_MODE)
