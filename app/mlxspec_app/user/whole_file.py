"""Replaces files atomically: a file has the old content or the new one, never a part."""

import os
import shutil
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically; a symbolic link and the permissions stay.

    Raises:
        OSError: The file cannot be written; it has not changed.
    """
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
