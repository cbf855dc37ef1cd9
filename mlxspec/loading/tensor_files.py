"""Read and write safetensors files, whole or only their headers."""

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec.errors import MlxspecError, UnsupportedModelError

_LENGTH = struct.Struct("<Q")
_WRONG = (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError)

StoredTensors = dict[str, tuple[str, int]]  # type of safetensors and bytes, by name


def read_safetensors(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Return the tensors of a file, lazy, and its metadata."""
    try:
        return mx.load(str(path), "safetensors", return_metadata=True)  # type: ignore[return-value]
    except _WRONG as error:
        raise _damaged(path, error) from error


def write_safetensors(
    path: Path, tensors: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file; after an error, a MlxspecError, the old file remains."""
    part = path.with_name(path.name + ".part.safetensors")  # MLX adds this ending to other names
    try:
        mx.save_safetensors(str(part), dict(tensors), dict(metadata or {}))
        os.replace(part, path)
    except (OSError, RuntimeError) as error:
        part.unlink(missing_ok=True)
        raise MlxspecError(f"cannot write {path}: {error}") from error


def header_of(path: Path) -> bytes:
    """Return the JSON header of a safetensors file; b"" if the file cannot have one."""
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
            return file.read(length) if length < path.stat().st_size else b""
    except OSError:
        return b""


def stored_tensors(path: Path) -> StoredTensors:
    """Return type and bytes of every tensor of a safetensors file, from its header."""
    try:
        header = header_of(path)
        tensors: dict[str, Any] = json.loads(header)
        tensors.pop("__metadata__", None)
        ends = [tensor["data_offsets"][1] for tensor in tensors.values()]
        if _LENGTH.size + len(header) + max(ends, default=0) > path.stat().st_size:
            raise ValueError("its tensors go past its end")
        starts = [tensor["data_offsets"][0] for tensor in tensors.values()]
        types = [str(tensor["dtype"]) for tensor in tensors.values()]
        sizes = [end - start for start, end in zip(starts, ends, strict=True)]
    except _WRONG as error:
        raise _damaged(path, error) from error
    return dict(zip(tensors, zip(types, sizes, strict=True), strict=True))


def _damaged(path: Path, error: Exception) -> UnsupportedModelError:
    return UnsupportedModelError(f"{path} is damaged or cut short ({error}): get or make it again")
