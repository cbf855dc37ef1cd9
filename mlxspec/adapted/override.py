"""Changes what one module does when it is called: one instance, never its class.

Python looks `__call__` up on the class. So the instance gets its own class, derived from the
original one. Its parameters, its name and `isinstance` stay the same.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

Undo = Callable[[], None]  # restores the original class of a module
Around = Callable[..., Any]  # gets the module's own call, then the arguments of that call
Place = tuple[str, Any, Any, Any]  # a part of a model: its name, container, key there, and itself


def derived(kind: type, **attributes: Any) -> type:
    """Return a class derived from another, with the other's name and module."""
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, **attributes})


def override(module: nn.Module, around: Around) -> Undo:
    """Replace the calls of a module by `around`; return the function that undoes it."""
    kind = type(module)

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return around(partial(kind.__call__, self), *args, **kwargs)

    return mark(module, __call__=__call__)


def mark(module: nn.Module, **attributes: Any) -> Undo:
    """Add attributes to the class of one module; return the function that undoes it."""
    kind = type(module)
    module.__class__ = derived(kind, **attributes)
    marked = weakref.ref(module)  # the undo function must not keep a model in memory

    def undo() -> None:
        if (alive := marked()) is not None:
            alive.__class__ = kind

    return undo


def restore(undo: list[Undo]) -> None:
    """Undo overrides, the last one first."""
    for one in reversed(undo):
        one()


def first_array(values: Iterable[Any]) -> mx.array:
    """Return the first array among the arguments of a call: the states that enter a module."""
    return next(value for value in values if isinstance(value, mx.array))


def places(model: nn.Module, parts: Sequence[nn.Module]) -> list[Place]:
    """Return the locations of some parts in a model."""
    sought = {id(part) for part in parts}
    found: list[Place] = []
    todo: list[tuple[str, Any]] = [("", model)]
    seen: set[int] = set()
    while todo:
        prefix, holder = todo.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, value in items:
            if not isinstance(value, dict | list | tuple) or id(value) in seen:
                continue
            seen.add(id(value))
            name = f"{prefix}.{key}".lstrip(".")
            if id(value) in sought:
                found.append((name, holder, key, value))
            todo.append((name, value))
    return found
