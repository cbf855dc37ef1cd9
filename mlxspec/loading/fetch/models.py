"""The models on this disk, and why some of them cannot run."""

from dataclasses import dataclass, field
from pathlib import Path

from mlxspec.adapted.config import Admission
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import admissions
from mlxspec.loading.fetch.sources import local_places
from mlxspec.loading.profile import ModelProfile, read_profile


@dataclass(frozen=True)
class LocalModel:
    """A model on this disk."""

    source: str  # for `load_model`
    size_gb: float  # on the disk
    problem: str = ""  # why it cannot be run
    name: str = ""
    path: Path = Path()  # a folder or a GGUF file
    profile: ModelProfile | None = field(default=None, repr=False)  # None if it cannot be run
    admission: Admission | None = None  # None if it was not examined, or needs no examination


def list_local_models() -> list[LocalModel]:
    """Return the models on this disk, the default model first; reads headers, no weights."""
    return [describe_model(place.path, place.source, place.name) for place in local_places()]


def describe_model(path: Path, source: str, name: str) -> LocalModel:
    """Return the description of the model in a folder or GGUF file."""
    files = path.rglob("*") if path.is_dir() else [path]
    size_gb = sum(file.stat().st_size for file in files if file.is_file()) / 1e9
    try:
        profile = read_profile(path)
    except UnsupportedModelError as error:
        return LocalModel(source, size_gb, str(error), name, path)
    admission = None if profile.is_exact else admissions.at(path)
    if admission is not None and admission.support is None:
        problem = f"it was compared with mlx-lm here, and is {admission.words}"
        return LocalModel(source, size_gb, problem, name, path)
    return LocalModel(source, size_gb, "", name, path, profile, admission)
