"""mlxspec's own file of a trained drafter: safetensors, with metadata that describes it.

    format   "mlxspec-drafter"
    kind     one of `KINDS`
    config   JSON: the numbers of the drafter
    card     JSON: recipe, data, figures; `target` has the `name` and `fingerprint` of its target

The tensors of a head have the normalised names of `checks.py`, so one file is enough.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.tensor_files import header_of, write_safetensors

FORMAT = "mlxspec-drafter"
HEADS = ("medusa", "eagle", "eagle3", "exit")
KINDS = (*HEADS, "draft-model", "table")


@dataclass(frozen=True)
class DrafterFile:
    """A trained drafter on this disk, as its header describes it.

    Attributes:
        digest: Hash of its header and size, which differs between trainings.
    """

    path: Path
    kind: str
    config: dict[str, Any] = field(repr=False)
    card: dict[str, Any] = field(repr=False)
    digest: str

    @property
    def target_fingerprint(self) -> str:
        """The `fingerprint` of its target, "" if the card has none."""
        target = self.card.get("target")
        return str(target.get("fingerprint", "")) if isinstance(target, dict) else ""


@dataclass(frozen=True)
class HeadCheckpoint:
    """A trained head as it was stored; the drafter of its kind builds a network from it.

    Attributes:
        kind: One of `HEADS`.
        config: Its numbers, with the same names for every layout. If the config of an EAGLE-3 head
            can mean two lists of layers, `capture` is the more probable one, and
            `capture_alternatives` holds the other.
        tensors: Its arrays by normalised name, in their stored types.
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
    """Write a head or a draft model to a file; after an error the old file remains.

    `config` holds the numbers of the network and `card` facts about it, both in types of JSON.
    `tensors` are by normalised name.
    """
    saved = [kind for kind in KINDS if kind != "table"]
    if kind not in saved:
        raise ValueError(f"kind {kind!r} is not known; choose from {', '.join(saved)}")
    facts = {"format": FORMAT, "kind": kind}
    for name, value in (("config", config), ("card", card)):
        try:
            facts[name] = json.dumps(dict(value))
        except TypeError as error:
            raise ValueError(f"the {name} of a drafter must be JSON: {error}") from error
    write_safetensors(Path(path), tensors, facts)


def read_drafter_file(path: Path) -> DrafterFile | None:
    """Return the drafter that the header of a file describes, or None for another format.

    A file of this format with an unknown kind or damaged metadata raises UnsupportedModelError.
    """
    header = header_of(path)
    try:
        metadata = json.loads(header)["__metadata__"]
        if metadata["format"] != FORMAT:
            return None
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    kind = metadata.get("kind")
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"{path} holds a drafter of the kind {kind!r}; known are {', '.join(KINDS)}"
        )
    config, card = (_json(path, name, metadata.get(name, "{}")) for name in ("config", "card"))
    digest = hashlib.sha256(header + str(path.stat().st_size).encode()).hexdigest()
    return DrafterFile(path, kind, config, card, digest[:16])


def _json(path: Path, name: str, text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return value
        fault = type(value).__name__
    except (ValueError, TypeError, RecursionError) as error:
        fault = str(error)
    raise UnsupportedModelError(
        f"the metadata of {path} is damaged: its {name} is not a JSON object ({fault})"
    )
