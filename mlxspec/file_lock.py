"""A lock between processes; the system releases it however a process ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock while others wait for it.

    `path` is a file used only for the lock; it is created with its folder, and stays.

    Raises:
        OSError: The file cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
