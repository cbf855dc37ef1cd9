"""Where models are stored on this disk: our cache, the hub's cache, folders of other programs.

LM Studio keeps models in one folder per publisher. Ollama keeps GGUF files without a name; its
manifests map names to files. Other GGUF files are in a few usual folders. A file that several
programs share is one model, under the first of its names.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from mlxspec.loading.fetch import default_model
from mlxspec.loading.folder import CONFIG
from mlxspec.params import DEFAULT_MODEL

_LM_STUDIO = (".lmstudio/models", ".cache/lm-studio/models")
_OLLAMA = ".ollama/models"
_OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"
_USUAL = ("models", "Models", "Downloads", ".cache/llama.cpp", "Library/Caches/llama.cpp")
_NO_MODEL = re.compile(r"mmproj.*|.*-0000[2-9]-of-\d+|.*-00[1-9]\d+-of-\d+|ggml-vocab.*", re.I)
"""GGUF files that are not models: vision projectors, later parts of a model, vocabularies."""


@dataclass(frozen=True)
class Place:
    """The location of a model.

    Attributes:
        source: The `source` for `load_model`.
        name: Name for messages and screens; it also works as a source.
        path: The folder or GGUF file.
    """

    source: str
    name: str
    path: Path


def local_places() -> Iterator[Place]:
    """Yield the locations of models on this disk, the default model first; reads no headers."""
    seen = set()
    for place in chain(_default(), _hub(), _lm_studio(), _ollama(), _usual()):
        try:
            facts = place.path.stat()
        except OSError:
            continue
        # A file system may treat models and Models as one folder.
        file = (facts.st_dev, facts.st_ino)
        if file not in seen:
            seen.add(file)
            yield place


def named(name: str) -> list[Place]:
    """Return the models on this disk that have a name."""
    return [place for place in local_places() if place.name == name]


def _default() -> Iterator[Place]:
    path = default_model.default_model_path()
    if path.is_file():
        yield Place("default", DEFAULT_MODEL, path)


def _hub() -> Iterator[Place]:
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return
    for repo in sorted(cache.repos, key=lambda repo: repo.repo_id.lower()):
        revisions = sorted(repo.revisions, key=lambda revision: revision.last_modified)
        if repo.repo_type == "model" and revisions:
            folder = revisions[-1].snapshot_path
            yield from _files(folder.glob("*.gguf")) or [Place(repo.repo_id, repo.repo_id, folder)]


def _lm_studio() -> Iterator[Place]:
    for root in (Path.home() / folder for folder in _LM_STUDIO):
        for folder in _sorted(root.glob("*/*")):
            yield from _in_folder(folder)


def _ollama() -> Iterator[Place]:
    chosen = os.environ.get("OLLAMA_MODELS")
    root = Path(chosen).expanduser() if chosen else Path.home() / _OLLAMA
    for manifest in _sorted((root / "manifests").glob("*/*/*/*")):
        *_, owner, model, tag = manifest.parts
        name = f"{model}:{tag}" if owner == "library" else f"{owner}/{model}:{tag}"
        blob = _weights_of(manifest)
        if blob:
            yield Place(name, name, root / "blobs" / blob)


def _weights_of(manifest: Path) -> str:
    """Return the name of the file that holds the weights of a manifest of Ollama, or ""."""
    try:
        layers = json.loads(manifest.read_bytes())["layers"]
        found = [layer["digest"] for layer in layers if layer["mediaType"] == _OLLAMA_WEIGHTS]
        return Path(found[0].replace(":", "-")).name if found else ""
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""  # another program's file, in an unknown format


def _usual() -> Iterator[Place]:
    for root in (Path.home() / folder for folder in _USUAL):
        yield from _files(root.glob("*.gguf"))
        for folder in _sorted(root.glob("*/")):
            yield from _in_folder(folder)


def _in_folder(folder: Path) -> list[Place]:
    """Return the GGUF files of a folder, or the folder itself if it is a model."""
    if (folder / CONFIG).is_file():
        return [Place(str(folder), folder.name, folder)]
    return _files(folder.glob("*.gguf"))


def _files(paths: Iterator[Path]) -> list[Place]:
    found = (path for path in _sorted(paths) if not _NO_MODEL.fullmatch(path.stem))
    return [Place(str(path), path.stem, path) for path in found]


def _sorted(paths: Iterator[Path]) -> list[Path]:
    try:
        return sorted(paths)
    except OSError:  # a folder that may not be read holds no models for us
        return []
