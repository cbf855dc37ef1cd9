"""Read the header of a GGUF file, and check every count, length and offset.

Files come from strangers and can be incomplete. `_HEADER_LIMIT` bounds the parser's time and
memory, and all tensors of the result are inside the file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import re
import struct
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf.types import TensorType, find_type, name_of_type, supported_types

_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})", re.DOTALL)
_HEADER_LIMIT = 64 << 20
_VERSIONS = (2, 3)
_MAX_DIMS = 4
_MAX_DIM = 2**31 - 1
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the file.

    Attributes:
        shape: Shape as in MLX: rows first.
        type: How its items are stored.
        offset: Its first byte in the file.
    """

    path: Path
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    n_bytes: int


@dataclass(frozen=True)
class GgufHeader:
    """The metadata and the list of tensors of a GGUF file, or of a model in several ones."""

    metadata: dict[str, Any] = field(repr=False)
    tensors: dict[str, TensorInfo] = field(repr=False)


def read_header(path: Path) -> GgufHeader:
    """Return the header of a GGUF file; all of its tensors are inside the file.

    For one of several parts, as llama.cpp splits a model, it is the header of the whole model.

    Raises:
        UnsupportedModelError: The file is no GGUF file, is damaged, or has an unsupported type; or
            a part is missing.
    """
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
    if size < 24:
        raise _damaged(path, f"it has {size} bytes, fewer than an empty header")
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), min(size, _HEADER_LIMIT), access=mmap.ACCESS_READ) as view,
    ):
        return _HeaderReader(path, view, size).read()


def _damaged(path: Path, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{path} is not a whole GGUF file ({what}): download it again")


class _HeaderReader:
    """Parses the header once; `_at` never passes the end of the view."""

    def __init__(self, path: Path, view: mmap.mmap, file_size: int) -> None:
        self._path = path
        self._view = view
        self._file_size = file_size
        self._at = 0

    def read(self) -> GgufHeader:
        magic = self._take(4)
        if magic != b"GGUF":
            raise UnsupportedModelError(
                f"{self._path} is not a GGUF file: it starts with {magic!r}, not b'GGUF'"
            )
        version = self._scalar("I")
        if version not in _VERSIONS:
            raise UnsupportedModelError(
                f"{self._path} has GGUF version {version}; versions 2 and 3 (little-endian) can "
                "be read: convert the file again"
            )
        num_tensors, num_pairs = self._count(24), self._count(13)
        metadata: dict[str, Any] = {}
        for _ in range(num_pairs):
            key = self._string(strict=True)
            if key in metadata:
                raise _damaged(self._path, f"the metadata key {key!r} is in it twice")
            metadata[key] = self._value(key, self._scalar("I"))
        return GgufHeader(metadata, self._tensors(num_tensors, self._alignment(metadata)))

    def _take(self, n_bytes: int) -> bytes:
        start = self._at
        if n_bytes > len(self._view) - start:
            raise _damaged(self._path, f"{n_bytes} bytes are announced at {start}, past its end")
        self._at = start + n_bytes
        return self._view[start : self._at]

    def _scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0]

    def _count(self, least_bytes: int) -> int:
        """Read the number of items that follow, each of at least `least_bytes` bytes."""
        count: int = self._scalar("Q")
        if count * least_bytes > len(self._view) - self._at:
            raise _damaged(self._path, f"{count} items are announced at {self._at - 8}")
        return count

    def _string(self, *, strict: bool = False) -> str:
        raw = self._take(self._count(1))
        try:
            return raw.decode(errors="strict" if strict else "replace")
        except UnicodeDecodeError as error:
            raise _damaged(self._path, f"the name {raw[:40]!r} is not UTF-8") from error

    def _value(self, key: str, type_id: int) -> Any:
        if type_id == _STRING:
            return self._string()
        if type_id == _ARRAY:
            return self._array(key)
        if type_id in _SCALARS:
            return self._scalar(_SCALARS[type_id])
        raise _damaged(self._path, f"the metadata key {key!r} has the unknown type {type_id}")

    def _array(self, key: str) -> list[Any]:
        type_id = self._scalar("I")
        if type_id == _STRING:
            return [self._string() for _ in range(self._count(8))]
        if type_id not in _SCALARS:
            raise _damaged(self._path, f"{key} is an array of the unreadable type {type_id}")
        code = _SCALARS[type_id]
        width = struct.calcsize("<" + code)
        count = self._count(width)
        return list(struct.unpack(f"<{count}{code}", self._take(count * width)))

    def _alignment(self, metadata: dict[str, Any]) -> int:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise _damaged(self._path, f"general.alignment is {alignment!r}")
        return alignment

    def _tensors(self, count: int, alignment: int) -> dict[str, TensorInfo]:
        found: dict[str, TensorInfo] = {}
        for _ in range(count):
            name = self._string(strict=True)
            if name in found:
                raise _damaged(self._path, f"the tensor {name} is in it twice")
            found[name] = self._tensor(name)
        start = -(-self._at // alignment) * alignment
        tensors = {name: replace(info, offset=start + info.offset) for name, info in found.items()}
        for name, info in tensors.items():
            end = info.offset + info.n_bytes
            if end > self._file_size:
                raise _damaged(self._path, f"{name} ends at byte {end} of {self._file_size}")
        claimed = sum(info.n_bytes for info in tensors.values())
        if claimed > self._file_size:  # overlapping tensors could exceed any memory
            raise _damaged(self._path, f"its tensors claim {claimed} of {self._file_size} bytes")
        return tensors

    def _tensor(self, name: str) -> TensorInfo:
        n_dims = self._scalar("I")
        if not 1 <= n_dims <= _MAX_DIMS:
            raise _damaged(self._path, f"the tensor {name} has {n_dims} dimensions")
        dims = struct.unpack(f"<{n_dims}Q", self._take(8 * n_dims))
        tensor_type = self._tensor_type(name, self._scalar("I"))
        if not all(1 <= dim <= _MAX_DIM for dim in dims) or dims[0] % tensor_type.block_items:
            raise _damaged(
                self._path,
                f"the tensor {name} of type {tensor_type.name} has the shape {dims[::-1]}",
            )
        n_bytes = prod(dims) // tensor_type.block_items * tensor_type.block_bytes
        return TensorInfo(self._path, dims[::-1], tensor_type, self._scalar("Q"), n_bytes)

    def _tensor_type(self, name: str, type_id: int) -> TensorType:
        tensor_type = find_type(type_id)
        if tensor_type is None:
            raise UnsupportedModelError(
                f"{self._path} holds {name} as {name_of_type(type_id)}; "
                f"{', '.join(supported_types())} can be read: choose such a file of this model"
            )
        if tensor_type.block_items > 1 and not name.endswith(".weight"):
            raise UnsupportedModelError(
                f"{self._path} holds {name} as {tensor_type.name}; only a weight can be quantised"
            )
        return tensor_type
