"""Trees of arrays as flat dictionaries, to files and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten


def flat(tree: Any) -> dict[str, mx.array]:
    """Return the arrays of a tree, such as a network's parameters, by their dotted paths."""
    return dict(cast(list[tuple[str, mx.array]], tree_flatten(tree)))


def write_arrays(
    path: Path, arrays: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file, whole or not at all."""
    partial = path.with_suffix(".partial.safetensors")
    mx.save_safetensors(str(partial), dict(arrays), dict(metadata or {}))
    partial.replace(path)


def read_arrays(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Return the arrays of a safetensors file and its metadata."""
    read = mx.load(str(path), format="safetensors", return_metadata=True)
    return cast(tuple[dict[str, mx.array], dict[str, str]], read)
