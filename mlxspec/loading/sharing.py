"""How several processes share one model: what each keeps, and what they agree on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import mlx.nn as nn

T = TypeVar("T")


def _whole(module: nn.Module) -> str:
    return ""


def _own(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Sharing:
    """How one process loads a model that it shares with others.

    Attributes:
        size: Number of processes.
        cut: Removes the parts that other processes keep, while the weights are lazy; returns how
            the model is shared, for display.
        agree: Returns the value of the first process in all of them; every process calls it in the
            same order.
    """

    size: int = 1
    cut: Callable[[nn.Module], str] = _whole
    agree: Callable[[Any], Any] = _own


ALONE = Sharing()
