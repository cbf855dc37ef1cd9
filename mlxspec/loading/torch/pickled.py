"""Read tensors from PyTorch's `.bin` and `.pt` files without PyTorch or executing the pickle.

Such a file is a zip archive whose members are not compressed:

    name/data.pkl     a pickle with storage, shape and strides of each tensor
    name/data/0, ...  the storages: plain numbers, little-endian

The pickle is interpreted safely (see `pickle_program.py`), and every size that it states is checked
against the file before memory is allocated.
"""

import math
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.torch.pickle_program import PickleRefusedError, TensorView, run_pickle

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


def read_pickled(
    path: Path, choose: Callable[[Collection[str]], Collection[str]] = list
) -> dict[str, mx.array]:
    """Return the tensors of a `.bin` or `.pt` file by name, in their stored types.

    `torch.save` must have written the file from a dict of tensors. `choose` selects the names to
    read from the names of all tensors; other tensors use no memory.

    Raises:
        UnsupportedModelError: The file is damaged, has the format before PyTorch 1.6, holds more
            than tensors, or states wrong sizes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            views = _tensor_views(archive)
            file_size = path.stat().st_size
            _check_views(views, file_size)
            chosen = {name: views[name] for name in choose(views.keys())}
            return _read_views(archive, chosen, file_size)
    except PickleRefusedError as error:
        raise UnsupportedModelError(
            f"{path} cannot be read as PyTorch weights: {error}; get the weights as safetensors, "
            "or download the file again"
        ) from error
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError) as error:
        raise UnsupportedModelError(
            f"{path} is damaged, or written by PyTorch before 1.6 ({error}): download it again, or "
            "get the weights as safetensors"
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError) as error:
        raise UnsupportedModelError(
            f"{path} is damaged or cut short ({error}): download it again"
        ) from error


def _tensor_views(archive: zipfile.ZipFile) -> dict[str, TensorView]:
    """Return the views of the tensors on the archive's storages."""
    content = run_pickle(_read_record(archive, _folder(archive) + "data.pkl", _MAX_PICKLE))
    if not isinstance(content, dict):
        raise PickleRefusedError(f"it holds {type(content).__name__}, not a dict of tensors")
    views = {}
    for name, value in content.items():
        if isinstance(value, TensorView):
            views[str(name)] = value
        elif isinstance(value, dict | list | tuple):
            raise PickleRefusedError(f"{name!r} is {type(value).__name__}, not a tensor")
    return views


def _folder(archive: zipfile.ZipFile) -> str:
    found = [name for name in archive.namelist() if name.split("/")[1:] == ["data.pkl"]]
    if len(found) != 1:
        raise PickleRefusedError("it is a zip archive without a data.pkl in its only folder")
    folder = found[0].removesuffix("data.pkl")
    order = folder + "byteorder"
    if order in archive.namelist() and _read_record(archive, order, 16) != b"little":
        raise PickleRefusedError("its numbers are big-endian; little-endian ones can be read")
    return folder


def _read_record(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    try:
        record = archive.getinfo(name)
    except KeyError:
        raise PickleRefusedError(f"its storage {name!r} is missing") from None
    if record.compress_type != zipfile.ZIP_STORED:
        raise PickleRefusedError(f"{name!r} is compressed, as torch.save never does")
    if record.file_size > limit:
        raise PickleRefusedError(f"{name!r} takes {record.file_size} bytes, more than {limit}")
    return archive.read(name)


def _check_views(views: Mapping[str, TensorView], file_size: int) -> None:
    """Refuse tensors that exceed their storage, or together exceed the file."""
    for name, view in views.items():
        if not _is_possible(view):
            raise PickleRefusedError(
                f"tensor {name!r} of shape {_short(view.shape)}, strides {_short(view.strides)} "
                f"and offset {_short(view.offset)} does not fit in its storage of "
                f"{_short(view.storage.num_items)} numbers"
            )
    distinct = set(views.values())
    storages = {view.storage: _num_bytes(view) for view in distinct}
    tensors = sum(math.prod(view.shape) * _item_size(view.storage.dtype) for view in distinct)
    stated = max(tensors, sum(storages.values()))
    if stated > file_size:
        raise PickleRefusedError(f"its tensors take {stated} bytes, the file has {file_size}")


def _is_possible(view: TensorView) -> bool:
    if not isinstance(view.shape, tuple) or not isinstance(view.strides, tuple):
        return False
    numbers = (*view.shape, *view.strides, view.offset, view.storage.num_items)
    if not all(type(number) is int and number >= 0 for number in numbers):
        return False
    if len(view.shape) != len(view.strides) or len(view.shape) > _MAX_AXES:
        return False
    if max(view.shape, default=0) > _MAX_SIZE:
        return False
    steps = zip(view.shape, view.strides, strict=True)
    last = view.offset + sum((length - 1) * stride for length, stride in steps)
    return 0 in view.shape or last < view.storage.num_items


def _short(value: Any) -> str:
    """Return a value for a message, cut to 200 characters: a hostile file can hold any value."""
    is_plain = isinstance(value, tuple) and all(isinstance(item, int) for item in value[:9])
    return str(value[:9] if is_plain else value if isinstance(value, int) else "?")[:200]


def _item_size(dtype: str) -> int:
    return np.dtype(_NUMPY[dtype]).itemsize


def _num_bytes(view: TensorView) -> int:
    return view.storage.num_items * _item_size(view.storage.dtype)


def _read_views(
    archive: zipfile.ZipFile, views: Mapping[str, TensorView], file_size: int
) -> dict[str, mx.array]:
    """Return the tensors; each storage is read once, and equal views share one array."""
    by_record: dict[str, set[TensorView]] = defaultdict(set)
    for view in views.values():
        by_record[view.storage.key].add(view)
    folder = _folder(archive)
    arrays: dict[TensorView, mx.array] = {}
    for key, members in by_record.items():
        sizes = {_num_bytes(view) for view in members}
        data = _read_record(archive, f"{folder}data/{key}", file_size)
        if sizes != {len(data)}:
            raise PickleRefusedError(f"storage {key!r} holds {len(data)} bytes, not {max(sizes)}")
        arrays |= {view: _cut(data, view) for view in members}
    return {name: arrays[view] for name, view in views.items()}


def _cut(data: bytes, view: TensorView) -> mx.array:
    numbers: NDArray[Any] = np.frombuffer(data, _NUMPY[view.storage.dtype])
    if not math.prod(view.shape):
        numbers = np.zeros(view.shape, numbers.dtype)
    else:
        steps = zip(view.shape, view.strides, strict=True)
        strides = [stride * numbers.itemsize if length > 1 else 0 for length, stride in steps]
        numbers = np.lib.stride_tricks.as_strided(
            numbers[view.offset :], view.shape, strides, writeable=False
        )
    array = mx.array(np.ascontiguousarray(numbers).reshape(view.shape))
    if view.storage.dtype == "bfloat16":
        return array.view(mx.bfloat16)
    return array.astype(mx.bool_) if view.storage.dtype == "bool" else array
