"""Creates files and folders that only their owner can read, independent of the umask."""

import os
from pathlib import Path

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents; an existing one does not change."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_private_folder(folder.parent)
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Create an empty file; an existing one does not change its content or its mode."""
    path.touch(mode=_FILE_MODE)


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=private_opener)`; a new file is private."""
    return os.open(path, flags, _FILE_MODE)
