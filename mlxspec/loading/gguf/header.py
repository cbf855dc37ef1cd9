"""Read the header of a GGUF file, and check every length, shape and offset.

`_HEADER_LIMIT` bounds the parser's time and memory, and all tensors of the result are inside the
file. (The reader of the package `gguf` checks none of this, and takes twenty times as long, because
it makes an array of every string.)

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import re
import struct
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from mlxspec.errors import UnsupportedModelError

_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})", re.DOTALL)
_HEADER_LIMIT = 64 << 20
_VERSIONS = (2, 3)
_MAX_DIMS = 4
_MAX_DIM = 2**31 - 1
_LENGTH = struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


@dataclass(frozen=True)
class TensorType:
    """A tensor type: it stores blocks of `block_items` items in `block_bytes` bytes."""

    name: str
    block_items: int
    block_bytes: int


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the file."""

    path: Path
    shape: tuple[int, ...]  # as in MLX: rows first
    type: TensorType
    offset: int  # of its first byte in the file
    n_bytes: int


@dataclass(frozen=True)
class GgufHeader:
    """The metadata and the list of tensors of a GGUF file, or of a model in several ones."""

    metadata: dict[str, Any] = field(repr=False)
    tensors: dict[str, TensorInfo] = field(repr=False)


def read_header(path: Path) -> GgufHeader:
    """Return the header of a GGUF file; for one of several parts, that of the whole model."""
    header = _read_file(path)
    count = header.metadata.get("split.count", 1)
    return header if count in (0, 1) else _joined(path, header, count)


def _joined(path: Path, own: GgufHeader, count: object) -> GgufHeader:
    """Return the header of all parts; the metadata of the model is that of the first."""
    named = _PART.fullmatch(path.stem)
    do = (
        "keep all of them in one folder under their names, or join them by llama-gguf-split --merge"
    )
    if named is None or type(count) is not int or int(named[2]) != count:
        raise UnsupportedModelError(
            f"{path} is one of several parts of a model (split.count is {count!r:.40}), and its "
            f"name does not end in the number of the part and {count!r:.40}: {do}"
        )
    metadata: dict[str, Any] = {}
    tensors: dict[str, TensorInfo] = {}
    for number in range(1, count + 1):
        part = path.with_name(f"{named[1]}-{number:05}-of-{named[2]}.gguf")
        if part != path and not part.is_file():
            raise UnsupportedModelError(
                f"{path} is one of {count} parts of a model, and {part.name} is not there: {do}"
            )
        header = own if part == path else _read_file(part)
        if header.metadata.get("split.count") != count or tensors.keys() & header.tensors.keys():
            raise UnsupportedModelError(f"{part} and {path} are not parts of one model: {do}")
        metadata = metadata or header.metadata
        tensors |= header.tensors
    return GgufHeader(metadata, tensors)


def _read_file(path: Path) -> GgufHeader:
    size = path.stat().st_size
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), min(size, _HEADER_LIMIT), access=mmap.ACCESS_READ) as view,
        ):
            header = _Parser(path, view).header()
        for name, info in header.tensors.items():
            if (end := info.offset + info.n_bytes) > size:
                raise ValueError(f"{name} ends at byte {end} of {size}")
        claimed = sum(info.n_bytes for info in header.tensors.values())
        if claimed > size:  # overlapping tensors could exceed any memory
            raise ValueError(f"its tensors claim {claimed} of {size} bytes")
    except (ValueError, struct.error) as error:
        why = "it ends inside its header" if isinstance(error, struct.error) else error
        raise UnsupportedModelError(
            f"{path} is not a whole GGUF file ({why}): download it again"
        ) from error
    return header


class _Parser:
    """Parses the header once; the view bounds every loop, as an item takes a byte or more."""

    def __init__(self, path: Path, view: mmap.mmap) -> None:
        self._path = path
        self._view = view
        self._at = 0

    def header(self) -> GgufHeader:
        magic = self._view[:4]
        if magic != b"GGUF":
            raise UnsupportedModelError(
                f"{self._path} is not a GGUF file: it starts with {magic!r}, not b'GGUF'"
            )
        _, version, num_tensors, num_pairs = self._numbers("4sIQQ")
        if version not in _VERSIONS:
            raise UnsupportedModelError(
                f"{self._path} has GGUF version {version}; versions 2 and 3 (little-endian) can "
                "be read: convert the file again"
            )
        metadata: dict[str, Any] = {}
        for _ in range(num_pairs):
            key = self._string("strict")
            if key in metadata:
                raise ValueError(f"the metadata key {key!r} is in it twice")
            metadata[key] = self._value(key)
        tensors: dict[str, TensorInfo] = {}
        for _ in range(num_tensors):
            name = self._string("strict")
            if name in tensors:
                raise ValueError(f"the tensor {name} is in it twice")
            tensors[name] = self._tensor(name)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"general.alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        return GgufHeader(
            metadata,
            {name: replace(info, offset=start + info.offset) for name, info in tensors.items()},
        )

    def _numbers(self, codes: str) -> tuple[Any, ...]:
        found = struct.unpack_from("<" + codes, self._view, self._at)
        self._at += struct.calcsize("<" + codes)
        return found

    def _string(self, errors: str = "replace") -> str:
        start = self._at + _LENGTH.size
        (length,) = _LENGTH.unpack_from(self._view, self._at)
        if length > len(self._view) - start:
            raise ValueError(f"{length} bytes are announced at {start}, past its end")
        self._at = start + length
        return self._view[start : self._at].decode(errors=errors)

    def _value(self, key: str) -> Any:
        (kind,) = self._numbers("I")
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._numbers(_SCALARS[kind])[0]
        if kind != _ARRAY:
            raise ValueError(f"the metadata key {key!r} has the unknown type {kind}")
        kind, count = self._numbers("IQ")
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        if kind not in _SCALARS:
            raise ValueError(f"{key} is an array of the unreadable type {kind}")
        return list(self._numbers(f"{count}{_SCALARS[kind]}"))

    def _tensor(self, name: str) -> TensorInfo:
        """Return a tensor whose offset is relative to the first tensor."""
        (n_dims,) = self._numbers("I")
        if not 1 <= n_dims <= _MAX_DIMS:
            raise ValueError(f"the tensor {name} has {n_dims} dimensions")
        *dims, type_id, offset = self._numbers(f"{n_dims}QIQ")
        stored = tensor_type(type_id)
        if stored is None:
            names = {int(kind): kind.name for kind in GGMLQuantizationType}
            raise UnsupportedModelError(
                f"{self._path} holds {name} as {names.get(type_id, f'type {type_id}')}; "
                f"{', '.join(supported_types())} can be read: choose such a file of this model"
            )
        if stored.block_items > 1 and not name.endswith(".weight"):
            raise UnsupportedModelError(
                f"{self._path} holds {name} as {stored.name}; only a weight can be quantised"
            )
        shape = tuple(reversed(dims))
        if not all(1 <= dim <= _MAX_DIM for dim in dims) or shape[-1] % stored.block_items:
            raise ValueError(f"the tensor {name} of type {stored.name} has the shape {shape}")
        n_bytes = prod(dims) // stored.block_items * stored.block_bytes
        return TensorInfo(self._path, shape, stored, offset, n_bytes)


@cache
def tensor_type(type_id: int) -> TensorType | None:
    """Return the type of a number in a file, or None if the package `gguf` cannot decode it."""
    try:
        kind = GGMLQuantizationType(type_id)
        items, n_bytes = GGML_QUANT_SIZES[kind]
        dequantize(np.zeros((1, n_bytes), np.uint8), kind)
    except (ValueError, KeyError, NotImplementedError):
        return None
    return TensorType(kind.name, items, n_bytes)


def supported_types() -> list[str]:
    """Return the names of all types that can be decoded."""
    return [kind.name for kind in GGMLQuantizationType if tensor_type(int(kind)) is not None]
