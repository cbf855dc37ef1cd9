"""Files that are whole at any moment: the content before, or the new one."""

import os
import shutil
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Give a file a new content, at once or not at all; a link stays one, and so do its rights.

    Raises:
        OSError: It cannot be written; then it is as it was.
    """
    place = path.resolve()
    handle, draft = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            shutil.copymode(place, draft)
        os.replace(draft, place)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
