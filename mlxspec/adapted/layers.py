"""Overrides the decoder layers and the backbone of a model, to keep their inputs and outputs.

Trained drafters need the states that enter some layers. An early exit runs only some layers. The
head is the model with the backbone replaced by its result.
"""

from collections.abc import Callable
from typing import Any

import mlx.nn as nn

from mlxspec.adapted.current import Current
from mlxspec.adapted.override import Undo, first_array, override


def watch(layer: nn.Module, index: int, current: Current, *, is_last: bool) -> Undo:
    """Make a layer keep the states that enter it, and the last layer those that leave it."""

    def around(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        part = current.part
        if part is not None:
            x = part.x if index == part.layers.start else args[0]
            if index not in part.layers:
                return x
            args = (x, *args[1:])
        if index in current.capture:
            current.entering[index] = first_array([*args, *kwargs.values()])
        result = call(*args, **kwargs)
        if part is not None and index == part.layers[-1]:
            part.result = result
        if is_last and index + 1 in current.capture:
            current.entering[index + 1] = result[0] if isinstance(result, tuple) else result
        return result

    return override(layer, around)


def catch(backbone: nn.Module, current: Current) -> Undo:
    """Make the backbone keep its result, or return a given one instead of running."""

    def around(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if current.replay is not None:
            return current.replay
        result = call(*args, **kwargs)
        if current.is_running:
            current.final = result
        return result

    return override(backbone, around)
