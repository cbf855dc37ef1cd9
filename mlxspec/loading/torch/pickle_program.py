"""Interpret a pickle of tensors safely.

A pickle is a program for a small stack machine, and its instructions can import and call anything.
This interpreter supports only the instructions that build plain data. It looks names up in a fixed
table, and can call only the three functions below, which import nothing and execute no code of the
file. It refuses any other name or instruction, and the error names it.
"""

import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

STORAGES = {  # MLX has no other type of torch
    "torch.FloatStorage": "float32",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
}
_DICT = "collections.OrderedDict"
_TENSOR = "torch._utils._rebuild_tensor_v2"
_PARAMETER = "torch._utils._rebuild_parameter"
_ALLOWED = {*STORAGES, _DICT, _TENSOR, _PARAMETER}


class PickleRefusedError(ValueError):
    """A pickle is damaged, or uses more than tensors need; the message gives the reason."""


@dataclass(frozen=True)
class Storage:
    """A sequence of `num_items` numbers of one type, stored in the record `key`."""

    dtype: str
    key: str
    num_items: int


@dataclass(frozen=True)
class TensorView:
    """Offset, shape and strides of a tensor in its storage, in items; all of it unchecked."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Name:
    """A class or function that a pickle names."""

    path: str


def run_pickle(program: bytes) -> Any:
    """Return the data of a pickle, with a `TensorView` for each tensor.

    Raises:
        PickleRefusedError: The pickle is damaged, or uses names or instructions that tensors do
            not need.
    """
    try:
        return _Machine().run(program)
    except PickleRefusedError:
        raise
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise PickleRefusedError(f"its pickle is damaged ({error})") from error


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stack below each mark
        self._memo: dict[int, Any] = {}

    def run(self, program: bytes) -> Any:
        for instruction, argument, _ in pickletools.genops(program):
            name = instruction.name
            if name in _CONSTANTS:
                self._stack.append(argument)
            elif name in _FIXED:
                self._stack.append(_FIXED[name]())
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name not in ("PROTO", "FRAME", "STOP"):
                raise PickleRefusedError(f"its pickle uses {name}, which tensors do not need")
        return self._stack.pop()

    def mark(self, _: Any) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def pop(self, _: Any) -> None:
        self._stack.pop()

    def make_tuple(self, _: Any) -> None:
        items = tuple(self._since_mark())
        self._stack.append(items)

    def make_list(self, _: Any) -> None:
        items = self._since_mark()
        self._stack.append(items)

    def make_dict(self, _: Any) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._set(items)

    def last_as_tuple(self, count: int) -> None:
        items = tuple(self._stack[len(self._stack) - count :])
        if len(items) != count:
            raise LookupError("the stack is empty")
        del self._stack[len(self._stack) - count :]
        self._stack.append(items)

    def append(self, _: Any) -> None:
        self._extend([self._stack.pop()])

    def append_all(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise TypeError("items for what is not a list")
        self._stack[-1].extend(items)

    def set_item(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def set_all(self, _: Any) -> None:
        self._set(self._since_mark())

    def _set(self, items: list[Any]) -> None:
        if not isinstance(self._stack[-1], dict):
            raise TypeError("keys for what is not a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):  # hashing deeply nested tuples could take forever
                raise TypeError(f"a key of type {type(key).__name__}")
            self._stack[-1][key] = value

    def remember(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def remember_next(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def recall(self, place: int) -> None:
        self._stack.append(self._memo[place])

    def name(self, words: str) -> None:
        self._push_name(words.replace(" ", ".", 1))

    def name_from_stack(self, _: Any) -> None:
        attribute, module = self._stack.pop(), self._stack.pop()
        if not isinstance(module, str) or not isinstance(attribute, str):
            raise TypeError("a name that is not text")
        self._push_name(f"{module}.{attribute}")

    def _push_name(self, path: str) -> None:
        if path not in _ALLOWED:
            raise PickleRefusedError(
                f"its pickle names {path[:200]!r}, which is neither a tensor nor a storage of a "
                f"type that MLX has ({', '.join(sorted(set(STORAGES.values())))})"
            )
        self._stack.append(_Name(path))

    def storage(self, _: Any) -> None:
        kind, name, key, _location, num_items = self._stack.pop()
        if kind != "storage" or not isinstance(name, _Name) or name.path not in STORAGES:
            raise TypeError("a reference to something that is not a storage")
        if not isinstance(key, str):
            raise TypeError("a storage whose name is not text")
        self._stack.append(Storage(STORAGES[name.path], key, num_items))

    def call(self, _: Any) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise TypeError("a call of what is not a function")
        if function.path not in _CALLS:
            raise PickleRefusedError(f"its pickle calls {function.path}")
        self._stack.append(_CALLS[function.path](arguments))

    def drop_state(self, _: Any) -> None:
        """Ignore attributes of a dict, such as versions of the modules in a state dict."""
        self._stack.pop()
        if not isinstance(self._stack[-1], dict):
            raise PickleRefusedError("its pickle sets attributes of what is not a dict")


def _new_dict(arguments: Sequence[Any]) -> dict[Any, Any]:
    if arguments:
        raise TypeError("a dict made from arguments")
    return {}


def _new_tensor(arguments: Sequence[Any]) -> TensorView:
    storage, offset, shape, strides = arguments[:4]
    if not isinstance(storage, Storage):
        raise TypeError("a tensor without storage")
    return TensorView(storage, offset, shape, strides)


def _unwrap_parameter(arguments: Sequence[Any]) -> TensorView:
    if not isinstance(arguments[0], TensorView):
        raise TypeError("a parameter without tensor")
    return arguments[0]


_CALLS: dict[str, Callable[[Sequence[Any]], Any]] = {
    _DICT: _new_dict,
    _TENSOR: _new_tensor,
    _PARAMETER: _unwrap_parameter,
}
_CONSTANTS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING"),
}
_FIXED: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "TUPLE": _Machine.make_tuple,
    "TUPLE1": lambda machine, _: machine.last_as_tuple(1),
    "TUPLE2": lambda machine, _: machine.last_as_tuple(2),
    "TUPLE3": lambda machine, _: machine.last_as_tuple(3),
    "LIST": _Machine.make_list,
    "DICT": _Machine.make_dict,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.append_all,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_all,
    "PUT": _Machine.remember,
    "BINPUT": _Machine.remember,
    "LONG_BINPUT": _Machine.remember,
    "MEMOIZE": _Machine.remember_next,
    "GET": _Machine.recall,
    "BINGET": _Machine.recall,
    "LONG_BINGET": _Machine.recall,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name_from_stack,
    "BINPERSID": _Machine.storage,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.drop_state,
}
