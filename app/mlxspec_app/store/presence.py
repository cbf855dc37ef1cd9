"""Detects whether another process has the store open, by a lock that ends with the process.

A reply without an end was cut off only if no process is still writing it.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlxspec_app.user.private import private_opener


@contextmanager
def present(path: Path) -> Iterator[bool]:
    """Hold a shared lock that shows other processes that this one has the store open.

    The folder of `path` must exist. Yields whether no other process had the store open before.
    """
    is_alone = False
    with open(path.with_suffix(".open"), "a", opener=private_opener) as file:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        fcntl.flock(
            file, fcntl.LOCK_SH
        )  # the exclusive lock of any later process fails on this one
        yield is_alone
