"""Where models lie: from a name to a path, and all models on this disk.

LM Studio keeps models in one folder per publisher. Ollama keeps GGUF files without a name; its
manifests map names to files. A file that several programs share is one model, under the first of
its names.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from os import PathLike, fspath
from os.path import expanduser
from pathlib import Path

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from mlxspec.errors import (
    ModelNotFoundError,
    Progress,
    UnsupportedOperationError,
    did_you_mean,
)
from mlxspec.loading.fetch import default_model
from mlxspec.loading.fetch.default_model import fetch_default_model
from mlxspec.loading.fetch.hub import cached_folder, hub_folder
from mlxspec.loading.fetch.offers import offers
from mlxspec.loading.folder import CONFIG
from mlxspec.params import DEFAULT_MODEL

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_LM_STUDIO = (".lmstudio/models", ".cache/lm-studio/models")
_OLLAMA = ".ollama/models"
_OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"
_USUAL = ("models", "Models", "Downloads", ".cache/llama.cpp", "Library/Caches/llama.cpp")
_NO_MODEL = re.compile(r"mmproj.*|.*-0000[2-9]-of-\d+|.*-00[1-9]\d+-of-\d+|ggml-vocab.*", re.I)
"""GGUF files that are not models: vision projectors, later parts of a model, vocabularies."""


@dataclass(frozen=True)
class Source:
    """The location of a model."""

    path: Path  # a folder or a GGUF file
    name: str  # for messages and screens; that of a model on this disk also works as a source
    revision: str = ""  # its commit or SHA-256, if that is known
    source: str = ""  # for `load_model`; only models that `local_places` yields state it


def find_source(
    source: str | PathLike[str] | None,
    on_progress: Progress | None = None,
    revision: str | None = None,
) -> Source:
    """Return the location of a model; download the default model or a hub model if necessary."""
    text = _word_of(source)
    if revision is not None and not _is_hub_id(text):
        raise UnsupportedOperationError(
            f"revision is not supported for {text!r}: only models of the hub have revisions; leave "
            "it out"
        )
    if text == "default":
        path = fetch_default_model(on_progress)
        return Source(path, DEFAULT_MODEL, default_model.SHA256)
    path = Path(expanduser(text))
    if text and path.is_dir():
        return Source(path, path.resolve().name)
    if path.is_file():
        return Source(path, path.stem)
    if _is_hub_id(text):
        try:
            folder = hub_folder(text, on_progress, revision)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(f"{error}{_meant(text)}") from error
        return Source(folder, text, folder.name)
    if (known := source_named(text)) is not None:
        return known
    raise ModelNotFoundError(
        f"{text!r} is not a model: give a folder, a GGUF file, a hub id such as "
        "'mlx-community/Qwen2.5-0.5B-Instruct-4bit', a name that `mlxspec models` lists, or "
        f"nothing for the default model{_meant(text)}"
    )


def _meant(text: str) -> str:
    """Return the model here or worth fetching whose name is next to a text, for a message."""
    known = [*(place.name for place in local_places()), *(offer.repository for offer in offers())]
    meant = "" if text in known else did_you_mean(text, known)
    return meant and f"; {meant}"


def find_local(source: str) -> Source | None:
    """Return the location of a model on this disk; None if it is missing or the name is invalid."""
    if source == "" or _word_of(source) == "default":
        return find_source("default") if default_model.has_default_model() else None
    try:
        if not HUB_ID.fullmatch(source) or Path(expanduser(source)).exists():
            return find_source(source)
        folder = cached_folder(source)
    except (ModelNotFoundError, ValueError):  # no such file, or an invalid hub id
        return None
    return Source(folder, source, folder.name) if folder else None


def _word_of(source: str | PathLike[str] | None) -> str:
    """Return the requested source; "default" also for the name of the default model."""
    text = "default" if source is None else fspath(source)
    return "default" if text == DEFAULT_MODEL and not Path(text).exists() else text


def source_named(name: str) -> Source | None:
    """Return the model on this disk that has a name, such as the name in the header of a chat."""
    found = [place for place in local_places() if place.name == name]
    if len(found) > 1:
        where = ", ".join(place.source for place in found)
        raise ModelNotFoundError(
            f"{name!r} is the name of several models here: give one of {where}"
        )
    return Source(found[0].path, name) if found else None


def _is_hub_id(text: str) -> bool:
    path = Path(expanduser(text))
    return bool(HUB_ID.fullmatch(text)) and path.suffix != ".gguf" and not path.exists()


def local_places() -> Iterator[Source]:
    """Yield the locations of models on this disk, the default model first; reads no headers."""
    seen = set()
    default = Source(default_model.default_model_path(), DEFAULT_MODEL, source="default")
    lm_studio = chain(*(_folders((Path.home() / root).glob("*/*")) for root in _LM_STUDIO))
    for place in chain([default], _hub(), lm_studio, _ollama(), _usual()):
        try:
            facts = place.path.stat()
        except OSError:
            continue
        # A file system may treat models and Models as one folder.
        file = (facts.st_dev, facts.st_ino)
        if file not in seen:
            seen.add(file)
            yield place


def _hub() -> Iterator[Source]:
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return
    for repo in sorted(cache.repos, key=lambda repo: repo.repo_id.lower()):
        revisions = sorted(repo.revisions, key=lambda revision: revision.last_modified)
        if repo.repo_type == "model" and revisions:
            folder = revisions[-1].snapshot_path
            yield from _files(folder.glob("*.gguf")) or [
                Source(folder, repo.repo_id, source=repo.repo_id)
            ]


def _ollama() -> Iterator[Source]:
    chosen = os.environ.get("OLLAMA_MODELS")
    root = Path(chosen).expanduser() if chosen else Path.home() / _OLLAMA
    for manifest in _sorted((root / "manifests").glob("*/*/*/*")):
        *_, owner, model, tag = manifest.parts
        name = f"{model}:{tag}" if owner == "library" else f"{owner}/{model}:{tag}"
        blob = _weights_of(manifest)
        if blob:
            yield Source(root / "blobs" / blob, name, source=name)


def _weights_of(manifest: Path) -> str:
    """Return the name of the file that holds the weights of a manifest of Ollama, or ""."""
    try:
        layers = json.loads(manifest.read_bytes())["layers"]
        found = [layer["digest"] for layer in layers if layer["mediaType"] == _OLLAMA_WEIGHTS]
        return Path(found[0].replace(":", "-")).name if found else ""
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""  # another program's file, in an unknown format


def _usual() -> Iterator[Source]:
    for root in (Path.home() / folder for folder in _USUAL):
        yield from _files(root.glob("*.gguf"))
        yield from _folders(root.glob("*/"))


def _folders(paths: Iterator[Path]) -> Iterator[Source]:
    """Yield the GGUF files in folders, or a folder itself if it is a model."""
    for folder in _sorted(paths):
        if (folder / CONFIG).is_file():
            yield Source(folder, folder.name, source=str(folder))
        else:
            yield from _files(folder.glob("*.gguf"))


def _files(paths: Iterator[Path]) -> list[Source]:
    found = (path for path in _sorted(paths) if not _NO_MODEL.fullmatch(path.stem))
    return [Source(path, path.stem, source=str(path)) for path in found]


def _sorted(paths: Iterator[Path]) -> list[Path]:
    try:
        return sorted(paths)
    except OSError:  # a folder that may not be read holds no models for us
        return []
