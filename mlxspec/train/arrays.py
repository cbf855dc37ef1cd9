"""Trees of arrays, such as the parameters of a network, as flat dictionaries."""

from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten


def flat(tree: Any) -> dict[str, mx.array]:
    """Return the arrays of a tree by their dotted paths."""
    return dict(cast(list[tuple[str, mx.array]], tree_flatten(tree)))
