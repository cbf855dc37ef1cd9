"""The seed text: what models of a free licence wrote, from which any tokenizer makes a table.

The file is UTF-8 text, compressed by LZMA; a zero byte stands between two texts. There is no chat
markup in it: that comes from the template of the model that reads it.
"""

import lzma
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mlxspec.errors import MlxspecError
from mlxspec.files import asset

_BETWEEN = "\0"
_FEWEST_CHARACTERS = 80  # a shorter text says little that others do not
_WORDS = 6  # in a run of words
_MOST_KNOWN = 0.6  # share of a text's runs of words that earlier texts may have
_BROKEN = "\ufffd"  # stands for bytes that are not UTF-8


def shipped_seed() -> Path:
    """Return the path of the seed text that comes with mlxspec."""
    return asset("seed") / "text.xz"


def read_seed(path: Path) -> list[str]:
    """Return the texts of a file; raises MlxspecError if it cannot be read."""
    try:
        return lzma.decompress(path.read_bytes()).decode().split(_BETWEEN)
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise MlxspecError(f"the seed text {path} cannot be read: {error}") from error


def write_seed(path: Path, texts: Iterable[str], max_bytes: int) -> list[str]:
    """Write the texts that tell something new, and return them.

    If they need more than `max_bytes`, the last ones are left out. The file is replaced as a whole
    or not changed; raises MlxspecError if it cannot be written.
    """
    chosen = list(_new(texts))
    while len(packed := _pack(chosen)) > max_bytes:
        chosen = chosen[: len(chosen) * max_bytes // len(packed)]
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_bytes(packed)
        os.replace(partial, path)
    except OSError as error:
        raise MlxspecError(f"cannot write the seed text {path}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return chosen


def _new(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts that are whole, long enough, and not mostly made of earlier ones."""
    known = set[int]()
    for text in map(str.strip, texts):
        words = text.split()
        runs = {hash(run) for run in zip(*(words[start:] for start in range(_WORDS)), strict=False)}
        is_old = len(runs & known) > _MOST_KNOWN * len(runs)
        is_broken = _BROKEN in text or _BETWEEN in text
        if len(text) >= _FEWEST_CHARACTERS and not is_old and not is_broken:
            known |= runs
            yield text


def _pack(texts: Iterable[str]) -> bytes:
    return lzma.compress(_BETWEEN.join(texts).encode(), preset=9 | lzma.PRESET_EXTREME)
