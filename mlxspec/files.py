"""Files that others use too: what comes with mlxspec, text files, and a lock between processes.

A text file is UTF-8, with any line endings. A byte order mark is not part of its text, and every
line ends in a line feed. So a text from a file equals the same text through a pipe.
"""

import codecs
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def asset(name: str) -> Path:
    """Return the path of an asset: inside the package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "assets" / name
    return inside if inside.exists() else package.parent / "assets" / name


class NotTextError(ValueError):
    """A file is no text; the message continues "the file notes.txt is"."""


def read_text(path: Path, most_bytes: int = -1) -> str:
    """Return the text of a file of at most `most_bytes` bytes; -1 for no limit.

    Raises:
        OSError: It cannot be read.
        NotTextError: It is not UTF-8 text, or too large.
    """
    with path.open("rb") as file:
        # One extra byte shows a larger file.
        data = file.read(most_bytes + 1 if most_bytes >= 0 else -1)
    if 0 <= most_bytes < len(data):
        raise NotTextError(f"larger than {most_bytes // 1000} kB: give a smaller one")
    return decoded(data)


def decoded(data: bytes) -> str:
    """Return the text of the bytes of a file or of a pipe.

    Raises:
        NotTextError: They are not UTF-8 text.
    """
    if data.startswith(_UTF_16):
        raise NotTextError("not UTF-8 text but UTF-16: give it as UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NotTextError(_fault(data, error.start, f"0x{data[error.start]:02x}")) from error
    if "\0" in text:  # a binary file can be valid UTF-8
        raise NotTextError(_fault(data, data.index(0), "zero"))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _fault(data: bytes, index: int, byte: str) -> str:
    place = len(data[:index].decode()) + 1
    return f"not UTF-8 text: its character {place} is the byte {byte}; give it as UTF-8"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock while others wait for it; the system releases it however a process ends.

    `path` is a file used only for the lock; it is created with its folder, and stays.

    Raises:
        OSError: The file cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
