"""Convert tensor names of a layout to normalised names; messages still use the old ones."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxspec.loading.heads.checkpoint import HeadCheckpoint

Rule = tuple[str, str]
"""A pattern for a whole name, and its replacement; "" for tensors that are not needed."""


@dataclass
class Renamed:
    """Tensors with normalised names.

    Attributes:
        origins: Names in the checkpoint by normalised name.
        unknown: Names that no rule covers, in order.
    """

    tensors: dict[str, mx.array]
    origins: dict[str, str]
    unknown: list[str]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def size(self, name: str, axis: int = 0) -> int | None:
        """Return the length of one axis of a tensor; None if there is no such axis."""
        array = self.tensors.get(name)
        return array.shape[axis] if array is not None and array.ndim > axis else None

    def move(self, old: str, new: str) -> None:
        """Rename a tensor from one normalised name to another."""
        self.tensors[new] = self.tensors.pop(old)
        self.origins[new] = self.origins.pop(old)

    def drop(self, name: str) -> None:
        """Remove a tensor and list its name as unknown."""
        del self.tensors[name]
        self.unknown.append(self.origins.pop(name))

    def indices(self, pattern: str) -> set[int]:
        """Return the numbers that the group of a pattern matches at the start of the names."""
        found = (re.match(pattern, name) for name in self.tensors)
        return {int(match[1]) for match in found if match}


@dataclass(frozen=True)
class ParsedHead:
    """An unchecked head with normalised names."""

    head: HeadCheckpoint
    origins: Mapping[str, str]


def rename(tensors: Mapping[str, mx.array], rules: Sequence[Rule]) -> Renamed:
    """Return the tensors, renamed by the first matching rule."""
    compiled = [(re.compile(pattern, re.ASCII), new) for pattern, new in rules]
    renamed = Renamed({}, {}, [])
    for name, array in tensors.items():
        found = ((pattern.fullmatch(name), new) for pattern, new in compiled)
        match, new = next(((match, new) for match, new in found if match), (None, ""))
        if match is None:
            renamed.unknown.append(name)
        elif new:
            renamed.tensors[match.expand(new)] = array
            renamed.origins[match.expand(new)] = name
    return renamed


def without_none(**values: Any) -> dict[str, Any]:
    """Return the entries whose values are not empty."""
    return {key: value for key, value in values.items() if value}
