"""The log of the app: errors with their tracebacks.

It is a file, because the terminal belongs to the screen. At most two files of a megabyte are kept.
The log never contains text of a chat.
"""

import time
from contextlib import suppress
from pathlib import Path

from mlxspec.trace.events import GenerationFailed
from mlxspec_app.conversation.events import AnyEvent, LoadFailed, SessionFailed
from mlxspec_app.user.files import make_private_file, make_private_folder

NAME = "app.log"
_MOST_BYTES = 1_000_000


def log_error(event: AnyEvent, folder: Path) -> None:
    """Write an event into a folder if it is an error; the first one creates the folder."""
    if not isinstance(event, GenerationFailed | LoadFailed | SessionFailed):
        return
    path, message = folder / NAME, f"{event.message}\n{event.traceback}".rstrip()
    with suppress(OSError):  # a chat must not fail because of its log
        make_private_folder(folder)
        if path.is_file() and path.stat().st_size > _MOST_BYTES:
            path.replace(path.with_name(f"{NAME}.1"))
        make_private_file(path)
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR {message}\n")
