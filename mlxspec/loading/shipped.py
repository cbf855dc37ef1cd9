"""The trained drafters on this disk: those of the package, and those trained here.

Each is one safetensors file with metadata:

    format  "mlxspec-drafter"
    kind    a key of `KINDS`
    config  JSON: the numbers of the drafter
    card    JSON: how it was made; `target` in it has the `name` and `fingerprint` of its target

Only headers are read to find them. A drafter that was trained on one copy of a model works with
every other copy, such as a GGUF file of 4 bits or a folder in bfloat16. All copies have the same
sizes and tokens, so the fingerprint of a target consists of these. Models that differ only in their
weights have the same fingerprint; only measured acceptance can tell them apart.
"""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlxspec.loading.fetch.default_model import cache_folder
from mlxspec.loading.heads.file import FORMAT
from mlxspec.loading.heads.file import KINDS as HEAD_KINDS
from mlxspec.models import TargetConfig
from mlxspec.tokenizer import Tokenizer

KINDS = ("table", "draft-model", *HEAD_KINDS)
_LENGTH = struct.Struct("<Q")
_DIGITS = 16
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "attention_bias",
)


@dataclass(frozen=True)
class DrafterFile:
    """A trained drafter on this disk.

    Attributes:
        kind: One of `KINDS`.
        config: The numbers of the drafter.
        card: How it was made, and for which target.
        digest: Hash of its header and size, which differs between trainings.
    """

    path: Path
    kind: str
    config: Mapping[str, Any] = field(repr=False)
    card: Mapping[str, Any] = field(repr=False)
    digest: str

    @property
    def target_fingerprint(self) -> str:
        """The `fingerprint` of its target, "" if the card has none."""
        target = self.card.get("target")
        return str(target.get("fingerprint", "")) if isinstance(target, dict) else ""


def read_drafter_file(path: Path) -> DrafterFile | None:
    """Return the drafter described by the header of a file, or None for another format."""
    header = _header(path)
    stated = _json(header).get("__metadata__")
    metadata = stated if isinstance(stated, dict) else {}
    kind = metadata.get("kind")
    if metadata.get("format") != FORMAT or kind not in KINDS:
        return None
    config, card = (_json(metadata.get(name, "")) for name in ("config", "card"))
    digest = hashlib.sha256(header + str(path.stat().st_size).encode()).hexdigest()
    return DrafterFile(path, kind, config, card, digest[:_DIGITS])


def own_folder() -> Path:
    """Return the folder for drafters trained on this machine."""
    return cache_folder() / "drafters"


def drafter_folders() -> tuple[Path, ...]:
    """Return the folders of trained drafters, the one of this machine first."""
    package = Path(__file__).parents[1]
    shipped = [folder / "assets" / "drafters" for folder in (package, package.parent)]
    return (own_folder(), *(folder for folder in shipped if folder.is_dir()))


def drafters_for(fingerprint: str, folders: Sequence[Path] | None = None) -> dict[str, DrafterFile]:
    """Return the trained drafters for the target with a fingerprint, by kind.

    If two drafters have one kind, the one in the earlier folder wins.
    """
    found: dict[str, DrafterFile] = {}
    for folder in drafter_folders() if folders is None else folders:
        for path in sorted(folder.glob("*.safetensors")):
            file = read_drafter_file(path)
            if file is not None and file.target_fingerprint == fingerprint:
                found.setdefault(file.kind, file)
    return found


def fingerprint(config: TargetConfig, tokenizer: Tokenizer) -> str:
    """Return the fingerprint of a target; it is the same for every quantisation of one model.

    It does not include the name of the family, because a GGUF file calls Mistral a Llama.
    """
    sizes = [getattr(config, name) for name in _SIZES]
    text = json.dumps([sizes, _plain_tokens(tokenizer)])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _plain_tokens(tokenizer: Tokenizer) -> list[tuple[int, str]]:
    """Return the tokens of plain text in order; formats mark the other tokens in different ways."""
    added = tokenizer.wrapped.added_tokens_decoder
    return sorted(
        (token, text)
        for text, token in tokenizer.wrapped.get_vocab().items()
        if token not in added and not (text.startswith("<") and text.endswith(">"))
    )


def _header(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
            return file.read(length) if length < path.stat().st_size else b""
    except OSError:
        return b""


def _json(text: Any) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
