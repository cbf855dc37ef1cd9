"""The models on this disk: the default one, and what the hub's cache folder holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import default_model
from mlxspec.loading.folder import read_config, weight_files
from mlxspec.loading.gguf_config import check_architecture
from mlxspec.loading.gguf_header import read_header
from mlxspec.models import ModelConfig


@dataclass(frozen=True)
class LocalModel:
    """A model on this disk.

    Attributes:
        source: What to pass to `load_model`.
        size_gb: Room it takes, in GB.
        problem: Why it cannot be run, or "".
    """

    source: str
    size_gb: float
    problem: str = ""


def list_local_models() -> list[LocalModel]:
    """Return the models that are here, the default model first; reads headers, no weights."""
    path = default_model.default_model_path()
    models = [LocalModel("default", path.stat().st_size / 1e9)] if path.is_file() else []
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return models
    for repo in sorted(cache.repos, key=lambda repo: repo.repo_id.lower()):
        revisions = sorted(repo.revisions, key=lambda revision: revision.last_modified)
        if repo.repo_type == "model" and revisions:
            models += _in_snapshot(repo.repo_id, revisions[-1].snapshot_path)
    return models


def _in_snapshot(repository: str, folder: Path) -> Iterator[LocalModel]:
    files = sorted(folder.glob("*.gguf"))
    for path in files:
        yield LocalModel(str(path), path.stat().st_size / 1e9, _gguf_problem(path))
    if not files:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        yield LocalModel(repository, size / 1e9, _folder_problem(folder))


def _gguf_problem(path: Path) -> str:
    try:
        check_architecture(path, read_header(path))
    except UnsupportedModelError as error:
        return str(error)
    return ""


def _folder_problem(folder: Path) -> str:
    try:
        ModelConfig.from_dict(read_config(folder))
        weight_files(folder)
    except UnsupportedModelError as error:
        return str(error)
    return ""
