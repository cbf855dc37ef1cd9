"""Find and read a trained head of any known layout; its network checks it.

A head is a folder, one file, or a hub id. Safetensors have priority over other files of a folder;
`torch_file.py` reads `.bin` and `.pt` files.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from os import PathLike, fspath
from os.path import expanduser
from pathlib import Path
from typing import Any

import mlx.core as mx
from huggingface_hub import snapshot_download

from mlxspec.device import backend
from mlxspec.errors import ModelNotFoundError, Progress, UnsupportedModelError
from mlxspec.loading.fetch.hub import cached_folder
from mlxspec.loading.fetch.sources import HUB_ID, Source, find_source
from mlxspec.loading.folder import (
    CONFIG,
    check_there,
    indexed_files,
    read_config,
    weight_files,
)
from mlxspec.loading.heads.file import HEADS, HeadCheckpoint, read_drafter_file
from mlxspec.loading.heads.layouts import is_bundled, parse_layout
from mlxspec.loading.heads.torch_file import read_torch_file
from mlxspec.loading.tensor_files import read_safetensors
from mlxspec.models import TargetConfig

_PICKLED = (".bin", ".pt", ".pth")
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")
_INDEX = "pytorch_model.bin.index.json"


def load_head(
    source: str | PathLike[str], target: TargetConfig, *, on_progress: Progress | None = None
) -> HeadCheckpoint:
    """Load a trained head of a known layout, which its network still has to check."""
    backend.check()
    found = find_head(source, on_progress)
    paths = _weight_paths(found.path) if found.path.is_dir() else [found.path]
    head = _own_head(found.path, paths) or _foreign_head(found.path, paths, target)
    stated = head.card.get("target")
    name = stated.get("name") if isinstance(stated, Mapping) else stated
    place = f"{found.path} (trained for {name})" if name else str(found.path)
    mx.eval(list(head.tensors.values()))
    return replace(head, name=found.name, place=place)


def find_head(source: str | PathLike[str], on_progress: Progress | None = None) -> Source:
    """Return the location of a head; download it from the hub if necessary."""
    text = fspath(source)
    path = Path(expanduser(text))
    if text and path.exists():
        return Source(path, path.resolve().name if path.is_dir() else path.stem)
    if not HUB_ID.fullmatch(text):
        raise ModelNotFoundError(
            f"there is no head {text!r}: give a folder, a .safetensors, .bin or .pt file, or a "
            "hub id such as 'yuhuili/EAGLE3-LLaMA3.1-Instruct-8B'"
        )
    try:
        folder = cached_folder(text)
        if folder is not None and _weight_paths(folder):
            return Source(folder, text, folder.name)
    except (OSError, ValueError, UnsupportedModelError):  # incomplete, or an invalid hub id
        pass
    found = find_source(text, on_progress)
    if not any(found.path.glob("*.safetensors")):
        _fetch_pickles(text)
    _weight_paths(found.path)
    return found


def _fetch_pickles(repository: str) -> None:
    try:
        snapshot_download(
            repository,
            allow_patterns=["*.json", *(f"*{ending}" for ending in _PICKLED)],
            ignore_patterns=["*/*", *(f"{name}*" for name in _NOT_WEIGHTS)],
        )
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"the weights of {repository} cannot be downloaded ({error}): connect to the "
            "network, or give a folder"
        ) from error


def _own_head(place: Path, paths: list[Path]) -> HeadCheckpoint | None:
    """Return the head in a file of mlxspec; None for other files."""
    file = next(filter(None, map(read_drafter_file, paths)), None)
    if file is None:
        return None
    if len(paths) > 1:
        names = ", ".join(other.name for other in paths[:4])
        raise UnsupportedModelError(f"{place} holds several heads: name one file of {names}")
    if file.kind not in HEADS:
        raise UnsupportedModelError(
            f"{file.path} holds a drafter of the kind {file.kind!r}; heads are of the kinds "
            f"{', '.join(HEADS)}"
        )
    tensors, _ = read_safetensors(file.path)
    return HeadCheckpoint(file.kind, file.config, tensors, file.path.stem, file.card)


def _foreign_head(place: Path, paths: list[Path], target: TargetConfig) -> HeadCheckpoint:
    folder = place if place.is_dir() else place.parent
    stored: dict[str, mx.array] = {}
    for path in paths:
        is_pickled = path.suffix in _PICKLED
        stored |= read_torch_file(path, _heads_first) if is_pickled else read_safetensors(path)[0]
    config: dict[str, Any] = read_config(folder) if (folder / CONFIG).is_file() else {}
    tensors = {name: stored[name] for name in _heads_first(stored)}
    return parse_layout(place, config, tensors, target)


def _weight_paths(folder: Path) -> list[Path]:
    for name in ("medusa_lm_head.safetensors", "medusa_lm_head.pt"):
        if (folder / name).is_file():
            return [folder / name]
    if any(folder.glob("*.safetensors*")):
        return weight_files(folder)
    if (folder / _INDEX).is_file():  # of a bundled checkpoint, only the shards with heads
        paths = indexed_files(folder, _INDEX, _heads_first)
        check_there(folder, paths)
        return paths
    return [_loose(folder)]


def _loose(folder: Path) -> Path:
    if (folder / "pytorch_model.bin").is_file():
        return folder / "pytorch_model.bin"
    paths = [path for path in folder.iterdir() if path.suffix in _PICKLED]
    names = sorted(path.name for path in paths if not path.name.startswith(_NOT_WEIGHTS))
    if len(names) != 1:
        raise UnsupportedModelError(
            f"{folder} holds no weights of a head: a .safetensors, .bin or .pt file is looked for"
            + (f", and {', '.join(names[:4])} are too many" if names else "")
        )
    return folder / names[0]


def _heads_first(names: Collection[str]) -> list[str]:
    """Return the names of bundled heads, or all names if none is bundled."""
    return [name for name in names if is_bundled(name)] or list(names)
