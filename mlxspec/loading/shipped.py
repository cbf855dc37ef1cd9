"""Find the trained drafters on this disk: those of the package, and those trained here.

Only headers are read to find them. A drafter that was trained on one copy of a model works with
every other copy, such as a GGUF file of 4 bits or a folder in bfloat16. All copies have the same
sizes and tokens, so the fingerprint of a target consists of these. Models that differ only in their
weights have the same fingerprint; only measured acceptance can tell them apart.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.file import DrafterFile, read_drafter_file
from mlxspec.loading.records import cache_folder
from mlxspec.models import TargetConfig
from mlxspec.tokenizer import Tokenizer

_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias"),
)


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
            with suppress(UnsupportedModelError):  # a damaged drafter must not hide the others
                file = read_drafter_file(path)
                if file is not None and file.target_fingerprint == fingerprint:
                    found.setdefault(file.kind, file)
    return found


def fingerprint(config: TargetConfig, tokenizer: Tokenizer) -> str:
    """Return the fingerprint of a target; it is the same for every quantisation of one model.

    It does not include the name of the family, because a GGUF file calls Mistral a Llama; nor the
    tokens that are not plain text, because formats mark these in different ways.
    """
    added = tokenizer.wrapped.added_tokens_decoder
    plain = sorted(
        (token, text)
        for text, token in tokenizer.wrapped.get_vocab().items()
        if token not in added and not (text.startswith("<") and text.endswith(">"))
    )
    text = json.dumps([[getattr(config, name) for name in _SIZES], plain])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
