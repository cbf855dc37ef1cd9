"""Files of the user: private ones, and whole ones, which never hold a part of their content."""

import os
import shutil
import tempfile
from itertools import count
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


def free_path(folder: Path, stem: str, suffix: str) -> Path:
    """Return a free name in a folder: chat.html, chat-2.html, chat-3.html ..."""
    names = (f"{stem}-{n}" if n > 1 else stem for n in count(1))
    paths = (folder / f"{name}{suffix}" for name in names)
    return next(path for path in paths if not path.exists())


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically; a symbolic link and the permissions stay."""
    target = path.resolve()
    # In the same folder: a rename is atomic only within one file system.
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else a power cut could leave the new name with no content
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
