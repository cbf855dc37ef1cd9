"""Tells whether another process has the store open, by a lock that dies with the process.

A reply without an ending was cut off only if nobody is still writing it.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlxspec_app.user.private import private_opener


@contextmanager
def present(path: Path) -> Iterator[bool]:
    """Let others know that this process has a store open, for the length of the block.

    Args:
        path: The store, in a folder that is there.

    Yields:
        Whether no other process had it open when this one came.
    """
    is_alone = False
    with open(path.with_suffix(".open"), "a", opener=private_opener) as file:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        fcntl.flock(file, fcntl.LOCK_SH)
        yield is_alone
