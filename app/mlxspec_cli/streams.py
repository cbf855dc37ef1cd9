"""Standard streams that every command can use, however the process was started.

The number of a stream that was closed goes to the next file that is opened: what anything prints
would then be written into that file, the store of chats for one. And a stream may have an encoding
that lacks characters of a reply, or that what is typed does not keep to: neither ends a chat.
"""

import io
import os
import sys


def mend_streams() -> None:
    """Open what is closed as the null device, and let no character be an error."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        is_ascii = sys.stdin.encoding.lower() in ("ascii", "ansi_x3.4-1968", "us-ascii")
        encoding = "utf-8" if is_ascii else None  # what is typed there is most likely that
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape")
