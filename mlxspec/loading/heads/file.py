"""mlxspec's own file of a trained head: safetensors, with metadata that describes it.

    format   "mlxspec-drafter"
    kind     "medusa", "eagle", "eagle3" or "exit"
    config   JSON: the numbers of the network
    card     JSON: recipe, data, tokens seen, figures, name of the target

The tensors have the normalised names of `checks.py`, so one file is enough.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from safetensors import SafetensorError, safe_open

from mlxspec.errors import MlxspecError, UnsupportedModelError

KINDS = ("medusa", "eagle", "eagle3", "exit")
FORMAT = "mlxspec-drafter"
SAVED_KINDS = (*KINDS, "draft-model")
"""A draft model is no head, but its file has the same format."""


@dataclass(frozen=True)
class HeadCheckpoint:
    """A trained head as it was stored; the drafter of its kind builds a network from it.

    Attributes:
        kind: One of `KINDS`.
        config: Its numbers, with the same names for every layout. If the config of an EAGLE-3 head
            can mean two lists of layers, `capture` is the more probable one, and
            `capture_alternatives` holds the other.
        tensors: Its arrays by normalised name, in their stored types.
        name: Name for messages and screens.
        card: Facts about it: recipe and figures of a head of mlxspec; of another head `target`
            (its `name`, if stated) and `note` (a warning for the user).
        unknown: Names in the checkpoint that no rule covers; the head works without them.
        origins: Names in the checkpoint by normalised name, where they differ.
    """

    kind: str
    config: dict[str, Any]
    tensors: dict[str, mx.array] = field(repr=False)
    name: str
    card: Mapping[str, Any]
    unknown: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict, repr=False)


def save_head(
    path: str | os.PathLike[str],
    kind: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, mx.array],
    card: Mapping[str, Any],
) -> None:
    """Write a head to a file, usually `.safetensors`; after an error the old file remains.

    `config` holds the numbers of the network and `card` facts about the head, both in types of
    JSON. `tensors` are by normalised name.

    Raises:
        ValueError: The kind is unknown, or config or card hold types that JSON does not have.
        MlxspecError: The file cannot be written.
    """
    if kind not in SAVED_KINDS:
        raise ValueError(f"kind {kind!r} is not known; choose from {', '.join(SAVED_KINDS)}")
    facts = {
        "format": FORMAT,
        "kind": kind,
        "config": _to_json("config", config),
        "card": _to_json("card", card),
    }
    write_safetensors(Path(path), tensors, facts)


def write_safetensors(
    path: Path, tensors: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file; after an error the old file remains.

    Raises:
        MlxspecError: The file cannot be written.
    """
    part = path.with_name(path.name + ".part.safetensors")  # MLX adds this ending to other names
    try:
        mx.save_safetensors(str(part), dict(tensors), dict(metadata or {}))
        os.replace(part, path)
    except (OSError, RuntimeError) as error:
        part.unlink(missing_ok=True)
        raise MlxspecError(f"cannot write {path}: {error}") from error


def read_safetensors(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Return the tensors of a file, lazy, and its metadata.

    Raises:
        UnsupportedModelError: The file is damaged or incomplete.
    """
    try:
        with safe_open(path, framework="np") as file:  # checks every offset, reads no tensor
            metadata = file.metadata() or {}
        tensors = mx.load(str(path), format="safetensors")
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise UnsupportedModelError(
            f"{path} is damaged or cut short ({error}): get or make it again"
        ) from error
    return tensors, metadata  # type: ignore[return-value]


def parse_head(
    path: Path, tensors: dict[str, mx.array], metadata: Mapping[str, str]
) -> HeadCheckpoint | None:
    """Return the unchecked head in a file of mlxspec; None for other files.

    Raises:
        UnsupportedModelError: The file of mlxspec has an unknown kind or damaged metadata.
    """
    if metadata.get("format") != FORMAT:
        return None
    kind = metadata.get("kind", "")
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"{path} holds a drafter of the kind {kind!r}; heads are of the kinds "
            f"{', '.join(KINDS)}"
        )
    config, card = (_from_json(path, key, metadata) for key in ("config", "card"))
    return HeadCheckpoint(kind, config, tensors, path.stem, card)


def _to_json(what: str, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(value))
    except TypeError as error:
        raise ValueError(f"the {what} of a head must be JSON: {error}") from error


def _from_json(path: Path, key: str, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        value = json.loads(metadata.get(key, "{}"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError(
            f"the metadata of {path} is damaged: its {key} is not JSON ({error})"
        ) from error
    if not isinstance(value, dict):
        raise UnsupportedModelError(
            f"the metadata of {path} is damaged: its {key} is {type(value).__name__}, not an object"
        )
    return value
