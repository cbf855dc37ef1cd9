"""mlxspec's own files of trained drafters: safetensors, with metadata that describes them.

    format   "mlxspec-drafter"
    kind     one of `KINDS`
    config   JSON: the numbers of the drafter
    card     JSON: recipe, data, figures; `target` has the `name` and `fingerprint` of its target

The tensors of a head have the names of its network, so one file is enough.

A drafter that was trained on one copy of a model works with every other copy, such as a GGUF file
of 4 bits or a folder in bfloat16. All copies have the same sizes and tokens, so the fingerprint of
a target consists of these. Models that differ only in their weights have the same fingerprint; only
measured acceptance can tell them apart.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec.errors import UnsupportedModelError
from mlxspec.files import asset
from mlxspec.loading.records import cache_folder
from mlxspec.loading.tensor_files import header_of, write_safetensors
from mlxspec.models import TargetConfig
from mlxspec.text.tokenizer import Tokenizer

FORMAT = "mlxspec-drafter"
HEADS = ("medusa", "eagle", "eagle3", "exit")
KINDS = (*HEADS, "draft-model", "table")
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias"),
)


@dataclass(frozen=True)
class DrafterFile:
    """A trained drafter on this disk, as its header describes it."""

    path: Path
    kind: str
    config: dict[str, Any] = field(repr=False)
    card: dict[str, Any] = field(repr=False)
    digest: str  # hash of its header and size, which differs between trainings

    @property
    def target_fingerprint(self) -> str:
        """The `fingerprint` of its target, "" if the card has none."""
        target = self.card.get("target")
        return str(target.get("fingerprint", "")) if isinstance(target, dict) else ""


@dataclass(frozen=True)
class HeadCheckpoint:
    """A trained head as it was stored; the drafter of its kind builds a network from it.

    If the config of an EAGLE-3 head can mean two lists of layers, `capture` is the more probable
    one, and `capture_alternatives` holds the other. The card has recipe and figures of a head of
    mlxspec; of another head `target` (its `name`, if stated) and `note`, a warning for the user.
    """

    kind: str  # one of `HEADS`
    config: dict[str, Any]  # its numbers, with the same names for every layout
    tensors: dict[str, mx.array] = field(repr=False)  # by normalised name, in their stored types
    name: str
    card: Mapping[str, Any]
    unknown: tuple[str, ...] = ()  # names in the file that are not used
    place: str = "the head"  # its path, and the target that it states, for messages


def save_head(
    path: str | os.PathLike[str],
    kind: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, mx.array],
    card: Mapping[str, Any],
) -> None:
    """Write a head or a draft model, described in JSON; after an error the old file stays."""
    texts = {"config": json.dumps(dict(config)), "card": json.dumps(dict(card))}
    write_safetensors(Path(path), tensors, {"format": FORMAT, "kind": kind, **texts})


def read_drafter_file(path: Path) -> DrafterFile | None:
    """Return the drafter that the header of a file describes, or None for another format."""
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


# ---- those on this disk ---------------------------------------------------------------------


def own_folder() -> Path:
    """Return the folder for drafters trained on this machine."""
    return cache_folder() / "drafters"


def drafter_folders() -> tuple[Path, ...]:
    """Return the folders of trained drafters, the one of this machine first."""
    return own_folder(), asset("drafters")


def drafters_for(fingerprint: str, folders: Sequence[Path] | None = None) -> dict[str, DrafterFile]:
    """Return the trained drafters for a target by kind; an earlier folder wins."""
    found: dict[str, DrafterFile] = {}
    for folder in drafter_folders() if folders is None else folders:
        for path in sorted(folder.glob("*.safetensors")):
            with suppress(UnsupportedModelError):  # a damaged drafter must not hide the others
                file = read_drafter_file(path)
                if file is not None and file.target_fingerprint == fingerprint:
                    found.setdefault(file.kind, file)
    return found


def fingerprint(config: TargetConfig, tokenizer: Tokenizer) -> str:
    """Return the fingerprint of a target, the same for every quantisation of one model."""
    # Without the family, as a GGUF file calls Mistral a Llama, and without tokens that are no plain
    # text, which formats mark in different ways.
    added = tokenizer.wrapped.added_tokens_decoder
    plain = sorted(
        (token, text)
        for text, token in tokenizer.wrapped.get_vocab().items()
        if token not in added and not (text.startswith("<") and text.endswith(">"))
    )
    text = json.dumps([[getattr(config, name) for name in _SIZES], plain])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
