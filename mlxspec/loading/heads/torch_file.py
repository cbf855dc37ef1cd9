"""Read tensors from PyTorch's `.bin` and `.pt` files, without PyTorch and without running them.

Such a file is a zip archive whose members are not compressed: `data.pkl`, a pickle with storage,
shape and strides of each tensor, and `data/0`, ..., the storages, little-endian numbers. A pickle
is a program that can import and call anything, so only the instructions and names that tensors need
are allowed, and every stated size is checked against the file before memory is allocated.
"""

import io
import math
import pickle
import pickletools
import struct
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import UnsupportedModelError

_MAX_PICKLE = 1 << 20  # bytes; a thousand tensors take 0.15 MB
_MAX_AXES = 8
_MAX_SIZE = 2**31 - 1  # of one axis, in MLX
_NUMPY = {
    "float32": "<f4",
    "float16": "<f2",
    "bfloat16": "<u2",
    "int64": "<i8",
    "int32": "<i4",
    "int8": "i1",
    "uint8": "u1",
    "bool": "u1",
}
_REFUSALS = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, EOFError),
    *(OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError),
)


def read_torch_file(
    path: Path, choose: Callable[[Collection[str]], Collection[str]] = list
) -> dict[str, mx.array]:
    """Return the tensors of a file that `choose` selects by name, in their stored types."""
    try:
        with zipfile.ZipFile(path) as archive:
            folder = _folder(archive)
            program = _read_record(archive, folder + "data.pkl", _MAX_PICKLE)
            views = _views(_Unpickler(io.BytesIO(program)).load())
            chosen = {name: views[name] for name in choose(views.keys())}
            return _read_views(archive, folder, chosen, path.stat().st_size)
    except _REFUSALS as error:
        raise UnsupportedModelError(
            f"{path} cannot be read as weights of PyTorch 1.6 or later: "
            f"{str(error) or type(error).__name__}; download it again, or get the weights as "
            "safetensors"
        ) from error


class _Storage(NamedTuple):
    """A sequence of numbers of one type, stored in the record `key`."""

    dtype: str
    key: str


class _View(NamedTuple):
    """Offset, shape and strides of a tensor in its storage, in items."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(_NUMPY[self.storage.dtype]).itemsize


def _new_dict() -> dict[Any, Any]:
    return {}


def _new_view(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _View:
    if not isinstance(storage, _Storage):
        raise TypeError("its pickle makes a tensor without a storage")
    is_even = len(shape) == len(strides) <= _MAX_AXES
    numbers = (offset, *strides, *shape)
    if not is_even or not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
        raise ValueError(
            f"offset, shape or strides of a tensor in {storage.key!r:.200} are impossible"
        )
    return _View(storage, offset, tuple(shape), tuple(strides))


def _unwrapped(parameter: Any, *_: Any) -> _View:
    if not isinstance(parameter, _View):
        raise TypeError("its pickle makes a parameter without a tensor")
    return parameter


_NAMES: dict[str, Any] = {
    "collections.OrderedDict": _new_dict,
    "torch._utils._rebuild_tensor_v2": _new_view,
    "torch._utils._rebuild_parameter": _unwrapped,
    "torch.FloatStorage": "float32",  # MLX has no other type of torch
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
}
_OPCODES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_ALLOWED = {
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BINFLOAT"),
    *("BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS"),
    *("EMPTY_DICT", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
    *("BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "BINPERSID", "REDUCE", "BUILD"),
}


class _Steps(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise ValueError(f"its pickle uses {_OPCODES.get(code, code)}, which tensors do not need")


class _Unpickler(pickle._Unpickler):
    """Builds plain data and views; it executes no code of the file.

    The base class is the one in Python, because the one in C allocates any stated size and hashes
    any key: the hash of a tuple within tuples can take forever, or exhaust the C stack.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        if path not in _NAMES:
            raise ValueError(
                f"its pickle names {path[:200]!r}, which is neither a tensor nor a storage of a "
                f"type that MLX has ({', '.join(sorted(_NUMPY))})"
            )
        return _NAMES[path]

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _location, _num_items = pid
        if kind != "storage" or not isinstance(dtype, str) or not isinstance(key, str):
            raise TypeError("its pickle refers to something that is not a storage")
        if dtype not in _NUMPY:
            raise TypeError(f"its pickle has a storage of the type {dtype[:200]!r}")
        return _Storage(dtype, key)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def load_setitems(self) -> None:
        self._set(self.pop_mark())

    def load_build(self) -> None:
        """Ignore attributes of a dict, such as versions of the modules in a state dict."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise TypeError("its pickle sets attributes of what is not a dict")

    def _set(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise TypeError("its pickle sets keys of what is not a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):
                raise TypeError(f"its pickle has a key of the type {type(key).__name__}")
            self.stack[-1][key] = value

    dispatch = _Steps(
        (code, step)
        for code, step in pickle._Unpickler.dispatch.items()
        if _OPCODES[code] in _ALLOWED
    )
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.BUILD[0]] = load_build


def _folder(archive: zipfile.ZipFile) -> str:
    found = [name for name in archive.namelist() if name.split("/")[1:] == ["data.pkl"]]
    if len(found) != 1:
        raise ValueError("it is a zip archive without a data.pkl in its only folder")
    folder = found[0].removesuffix("data.pkl")
    order = folder + "byteorder"
    if order in archive.namelist() and _read_record(archive, order, 16) != b"little":
        raise ValueError("its numbers are big-endian; little-endian ones can be read")
    return folder


def _read_record(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    try:
        record = archive.getinfo(name)
    except KeyError:
        raise ValueError(f"its storage {name!r} is missing") from None
    if record.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name!r} is compressed, as torch.save never does")
    if record.file_size > limit:
        raise ValueError(f"{name!r} takes {record.file_size} bytes, more than {limit}")
    return archive.read(name)


def _views(content: Any) -> dict[str, _View]:
    """Return the tensors of a pickle; plain values beside them are left out."""
    if not isinstance(content, dict):
        raise TypeError(f"it holds {type(content).__name__}, not a dict of tensors")
    for name, value in content.items():
        if isinstance(value, dict | list | tuple) and not isinstance(value, _Storage | _View):
            raise TypeError(f"{name!r} is {type(value).__name__}, not a tensor")
    return {str(name): value for name, value in content.items() if isinstance(value, _View)}


def _read_views(
    archive: zipfile.ZipFile, folder: str, views: Mapping[str, _View], file_size: int
) -> dict[str, mx.array]:
    """Return the tensors; each storage is read once, and equal views share one array."""
    by_record: dict[str, set[_View]] = defaultdict(set)
    for view in views.values():
        by_record[view.storage.key].add(view)
    stated = sum(view.n_bytes for members in by_record.values() for view in members)
    if stated > file_size:
        raise ValueError(f"its tensors take {stated} bytes, the file has {file_size}")
    arrays: dict[_View, mx.array] = {}
    for key, members in by_record.items():
        data = _read_record(archive, f"{folder}data/{key}", file_size)
        file_size -= len(data)  # records that overlap could exceed any memory
        arrays |= {view: _cut(data, view) for view in members}
    return {name: arrays[view] for name, view in views.items()}


def _cut(data: bytes, view: _View) -> mx.array:
    numbers: NDArray[Any] = np.frombuffer(data, _NUMPY[view.storage.dtype])
    steps = list(zip(view.shape, view.strides, strict=True))
    last = view.offset + sum((length - 1) * stride for length, stride in steps)
    is_inside = not view.n_bytes or last < len(numbers)
    if not is_inside or max(view.shape, default=0) > _MAX_SIZE:
        raise ValueError(
            f"a tensor of shape {view.shape}, strides {view.strides} and offset {view.offset} does "
            f"not fit in its storage {view.storage.key!r} of {len(numbers)} numbers"
        )
    if view.n_bytes:
        strides = [stride * numbers.itemsize if length > 1 else 0 for length, stride in steps]
        numbers = np.lib.stride_tricks.as_strided(
            numbers[view.offset :], view.shape, strides, writeable=False
        )
    else:
        numbers = np.zeros(view.shape, numbers.dtype)
    array = mx.array(np.ascontiguousarray(numbers).reshape(view.shape))
    if view.storage.dtype == "bfloat16":
        return array.view(mx.bfloat16)
    return array.astype(mx.bool_) if view.storage.dtype == "bool" else array
