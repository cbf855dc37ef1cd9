"""Find, read and check a trained head of any known layout.

A head is a folder, one file, or a hub id. Safetensors have priority over other files of a folder;
`torch_file.py` reads `.bin` and `.pt` files.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from os import PathLike, fspath
from os.path import expanduser
from pathlib import Path

import mlx.core as mx
from huggingface_hub import snapshot_download

from mlxspec.device import backend
from mlxspec.errors import ModelNotFoundError, UnsupportedModelError
from mlxspec.loading.fetch.hub import cached_folder
from mlxspec.loading.fetch.sources import Source, find_source
from mlxspec.loading.folder import CONFIG, is_there, read_config, weight_files
from mlxspec.loading.heads.checks import check_head
from mlxspec.loading.heads.file import HeadCheckpoint, parse_head, read_safetensors
from mlxspec.loading.heads.layouts import BUNDLED, HeadFiles, parse_layout
from mlxspec.loading.heads.torch_file import read_torch_file
from mlxspec.models import TargetConfig
from mlxspec.progress import Progress

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_PICKLED = (".bin", ".pt", ".pth")
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")
_INDEX = "pytorch_model.bin.index.json"


def load_head(
    source: str | PathLike[str],
    target: TargetConfig,
    *,
    on_progress: Progress | None = None,
) -> HeadCheckpoint:
    """Load a trained head for a target, from a folder, a file or a hub id.

    `on_progress` is called with the downloaded bytes and all bytes during a download.

    Raises:
        ModelNotFoundError: The head does not exist, or cannot be downloaded.
        UnsupportedModelError: The head is damaged, incomplete, of no known layout, or made for
            another target.
    """
    backend.check()
    found = find_head(source, on_progress)
    files = _read_head_files(found.path)
    head = parse_layout(files, target) if isinstance(files, HeadFiles) else files
    head = check_head(head, target, _described(found.path, head))
    mx.eval(list(head.tensors.values()))
    return replace(head, name=found.name)


def _described(path: Path, head: HeadCheckpoint) -> str:
    """Return the path, and the name of the target that the head was trained for, if it has one."""
    stated = head.card.get("target")
    name = stated.get("name") if isinstance(stated, Mapping) else stated
    return f"{path} (trained for {name})" if name else str(path)


def find_head(source: str | PathLike[str], on_progress: Progress | None = None) -> Source:
    """Return the location of a head; download it from the hub if necessary.

    Raises:
        ModelNotFoundError: There is no head of that name, or it cannot be downloaded.
        UnsupportedModelError: The repository on the hub holds no files of a head.
    """
    text = fspath(source)
    path = Path(expanduser(text))
    if text and path.exists():
        return Source(path, path.resolve().name if path.is_dir() else path.stem)
    if not _HUB_ID.fullmatch(text):
        raise ModelNotFoundError(
            f"there is no head {text!r}: give a folder, a .safetensors, .bin or .pt file, or a "
            "hub id such as 'yuhuili/EAGLE3-LLaMA3.1-Instruct-8B'"
        )
    return _cached(text) or _fetched(text, on_progress)


def _read_head_files(place: Path) -> HeadFiles | HeadCheckpoint:
    """Return the content of a folder or file; a file of mlxspec gives the parsed head.

    Raises:
        UnsupportedModelError: There are no weights, or they cannot be read.
    """
    paths = _weight_paths(place) if place.is_dir() else [place]
    folder = place if place.is_dir() else place.parent
    tensors: dict[str, mx.array] = {}
    for path in paths:
        if path.suffix in _PICKLED:
            tensors |= read_torch_file(path, _heads_first)
            continue
        found, metadata = read_safetensors(path)
        ours = parse_head(path, found, metadata)
        if ours is not None and len(paths) == 1:
            return ours
        if ours is not None:
            names = ", ".join(other.name for other in paths[:4])
            raise UnsupportedModelError(f"{place} holds several heads: name one file of {names}")
        tensors |= found
    config = read_config(folder) if (folder / CONFIG).is_file() else {}
    return HeadFiles(place, config, {name: tensors[name] for name in _heads_first(tensors)})


def _cached(repository: str) -> Source | None:
    try:
        folder = cached_folder(repository)
        if folder is not None:
            _weight_paths(folder)
    except (OSError, ValueError, UnsupportedModelError):  # incomplete, or an invalid hub id
        return None
    return Source(folder, repository, folder.name) if folder is not None else None


def _fetched(repository: str, on_progress: Progress | None) -> Source:
    found = find_source(repository, on_progress)
    if not any(found.path.glob("*.safetensors")):
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
    _weight_paths(found.path)
    return found


def _weight_paths(folder: Path) -> list[Path]:
    """Return the paths of all weight files of a folder."""
    for name in ("medusa_lm_head.safetensors", "medusa_lm_head.pt"):
        if (folder / name).is_file():
            return [folder / name]
    if any(folder.glob("*.safetensors*")):
        return weight_files(folder)
    names = _indexed(folder) if (folder / _INDEX).is_file() else _loose(folder)
    missing = [name for name in names if not is_there(folder / name)]
    if missing:
        raise UnsupportedModelError(
            f"{folder} lacks {', '.join(missing[:4])} ({len(missing)} of {len(names)} weight "
            "files): download the head again"
        )
    return [folder / name for name in names]


def _indexed(folder: Path) -> list[str]:
    """Return the shards of an index; of a bundled checkpoint, only those with heads."""
    try:
        weight_map = json.loads((folder / _INDEX).read_bytes())["weight_map"]
        shards = {str(name): Path(file).name for name, file in weight_map.items()}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise UnsupportedModelError(
            f"{folder / _INDEX} cannot be read ({error}): download it again"
        ) from error
    return sorted({shards[name] for name in _heads_first(shards)})


def _loose(folder: Path) -> list[str]:
    if (folder / "pytorch_model.bin").is_file():
        return ["pytorch_model.bin"]
    names = sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix in _PICKLED and not path.name.startswith(_NOT_WEIGHTS)
    )
    if len(names) != 1:
        raise UnsupportedModelError(
            f"{folder} holds no weights of a head: a .safetensors, .bin or .pt file is looked for"
            + (f", and {', '.join(names[:4])} are too many" if names else "")
        )
    return names


def _heads_first(names: Collection[str]) -> list[str]:
    """Return the names of bundled heads, or all names if none is bundled."""
    return [name for name in names if name.startswith(BUNDLED)] or list(names)
