"""Rows of the prefixes of earlier texts in files, so that they outlive the process.

A file holds the rows of one chunk of a text, or of what follows its last whole chunk. Its name has
a hash of all tokens up to its end, and of what rows depend on besides: so a text is found without
an index, a text that grows adds files, and files of another model or version are never found. A
checksum in the name tells a damaged file, which is deleted. A folder that cannot be written, or is
full, only means that prompts are read again.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import mlx.core as mx
import numpy as np

from mlxspec.kv.steady import CHUNK, Steady
from mlxspec.kv.storage import GROWTH, blank_rows

MOST_BYTES = 2 * 10**9
NO_CHAT = "0" * 16
"""The label of rows that belong to no chat."""

_NAME = re.compile(
    r"(?P<label>[0-9a-f]{16})-"
    r"(?:(?P<end>\d{1,9})-(?P<hash>[0-9a-f]{32})-(?P<crc>[0-9a-f]{8})|\w+\.part)\.safetensors"
)
_PART_S = 3600.0  # age of a part that no process is still writing

Planes = list[mx.array]
"""Rows of all layers as arrays (1, Hkv, L, D), in the order of `Cache.rows`."""


class _Name(NamedTuple):
    label: str
    end: int  # tokens up to the end of the rows
    hash: str


class PrefixFiles:
    """Files of rows in a folder for this user alone, up to a number of bytes.

    Several processes may use a folder. The files used longest ago go first.
    """

    def __init__(self, folder: Path, key: str, max_bytes: int = MOST_BYTES) -> None:
        """Use a folder, which the first file creates; `key` is what rows depend on."""
        self._folder, self._key, self._max_bytes = folder, key, max_bytes

    def find(
        self, tokens: Sequence[int], steady: Steady | None, beyond: int = 0
    ) -> tuple[int, Planes]:
        """Return the length of the longest known prefix, and its rows with room for more.

        Nothing is read unless the prefix is longer than `beyond`.
        """
        paths = {(name.end, name.hash): path for name, path in self._files().items()}
        hashes = self._hashes(tokens, steady, {end for end, _ in paths})
        known = {end: paths[end, own] for end, own in hashes.items() if (end, own) in paths}
        whole = 0
        while whole + CHUNK in known:
            whole += CHUNK
        last = max((end for end in known if whole < end < whole + CHUNK), default=whole)
        ends = [*range(CHUNK, whole + 1, CHUNK), *[last] * (last > whole)]
        parts, length = list[Planes](), 0
        for end in ends if last > beyond else ():
            if (planes := _read(known[end])) is None:
                break
            parts.append(planes)
            length = end
        self._touch([known[end] for end in ends])
        joined = [
            mx.concatenate([*own, blank_rows(own[0], 1, GROWTH)], axis=2)
            for own in zip(*parts, strict=True)
        ]
        mx.eval(joined)
        return length, joined

    def add(
        self,
        tokens: Sequence[int],
        rows: Callable[[int, int], Planes],
        steady: Steady | None,
        *,
        label: str = NO_CHAT,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Write the rows of a text that are not stored yet, unless stopped before a file.

        `rows(a, b)` returns those from a to b. `label`, 16 hexadecimal digits, names the files of a
        chat, so that they can be deleted with it.
        """
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            stored = self._files()
            ends = [
                *range(CHUNK, len(tokens) + 1, CHUNK),
                *[len(tokens)] * (len(tokens) % CHUNK > 0),
            ]
            hashes = self._hashes(tokens, steady, {*ends, *(name.end for name in stored)})
            used, paths = 0, list[Path]()
            for end in ends:
                path = stored.get(name := _Name(label, end, hashes[end]))
                if path is None:
                    if should_stop():
                        break
                    path = self._write(name, rows((end - 1) // CHUNK * CHUNK, end))
                paths.append(path)
                used += path.stat().st_size
                if used > self._max_bytes:  # the end of such a text would only push out its start
                    break
            self._touch(paths)
            for end, own in hashes.items():  # what followed the last whole chunk once
                if (
                    end % CHUNK
                    and end < len(tokens)
                    and (old := stored.get(_Name(label, end, own)))
                ):
                    old.unlink(missing_ok=True)
            self._shrink()

    def _hashes(
        self, tokens: Sequence[int], steady: Steady | None, ends: Iterable[int]
    ) -> dict[int, str]:
        """Return the hash of the text up to each of some ends."""
        running, start, found = sha256(f"{self._key}, {steady}".encode()), 0, dict[int, str]()
        for end in sorted(end for end in ends if end <= len(tokens)):
            running.update(np.array(tokens[start:end], np.int32).tobytes())
            found[end], start = running.copy().hexdigest()[:32], end
        return found

    def _files(self) -> dict[_Name, Path]:
        found = [(_NAME.fullmatch(path.name), path) for path in self._listed()]
        return {
            _Name(match["label"], int(match["end"]), match["hash"]): path
            for match, path in found
            if match and match["end"]
        }

    def _listed(self) -> list[Path]:
        with suppress(OSError):
            return list(self._folder.iterdir())
        return []

    def _write(self, name: _Name, planes: Planes) -> Path:
        """Write a file under another name first; after an error or an interrupt there is none."""
        handle, part = tempfile.mkstemp(".part.safetensors", f"{name.label}-", self._folder)
        os.close(handle)
        try:
            mx.save_safetensors(part, {str(index): plane for index, plane in enumerate(planes)})
            crc = crc32(Path(part).read_bytes())
            path = self._folder / f"{name.label}-{name.end}-{name.hash}-{crc:08x}.safetensors"
            os.replace(part, path)
        except RuntimeError as error:  # so MLX reports a full disk
            raise OSError(str(error)) from error
        finally:
            Path(part).unlink(missing_ok=True)
        return path

    def _touch(self, paths: Sequence[Path]) -> None:
        """Note the use of files: the start of a text, which others need too, as the latest."""
        now = time.time_ns()
        for index, path in enumerate(paths):
            with suppress(OSError):
                os.utime(path, ns=(now - index, now - index))

    def _shrink(self) -> None:
        sizes = list[tuple[int, int, Path]]()
        for path in self._listed():
            if match := _NAME.fullmatch(path.name):
                with suppress(OSError):
                    facts = path.stat()
                    if match["end"] is None and time.time() - facts.st_mtime > _PART_S:
                        path.unlink()
                    else:
                        sizes.append((facts.st_mtime_ns, facts.st_size, path))
        total = sum(size for _, size, _ in sizes)
        for _, size, path in sorted(sizes):
            if total <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size


def _read(path: Path) -> Planes | None:
    """Return the rows of a file; None if it is damaged, which deletes it, or gone."""
    try:
        match = _NAME.fullmatch(path.name)
        if match is None or crc32(path.read_bytes()) != int(match["crc"], 16):
            path.unlink(missing_ok=True)
            return None
        stored = mx.load(str(path), "safetensors")
        assert isinstance(stored, dict)
        planes = [stored[str(index)] for index in range(len(stored))]
        mx.eval(planes)
    except (OSError, RuntimeError):
        return None
    return planes
