"""The models on this disk, described from their headers."""

from dataclasses import dataclass, field
from pathlib import Path

from mlxspec.adapted.verdict import Verdict
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import verdicts
from mlxspec.loading.fetch.places import local_places
from mlxspec.loading.fetch.profile import ModelProfile, read_profile


@dataclass(frozen=True)
class LocalModel:
    """A model on this disk.

    Attributes:
        source: The `source` for `load_model`.
        size_gb: Size on the disk in GB.
        problem: The reason why it cannot be run, or "".
        path: The folder or GGUF file.
        profile: The profile from its headers, or None if it cannot be run.
        verdict: The result of its examination on this machine; None if it was not examined, or
            needs no examination.
    """

    source: str
    size_gb: float
    problem: str = ""
    name: str = ""
    path: Path = Path()
    profile: ModelProfile | None = field(default=None, repr=False)
    verdict: Verdict | None = None


def list_local_models() -> list[LocalModel]:
    """Return the models on this disk, the default model first; reads headers, no weights."""
    return [describe_model(place.path, place.source, place.name) for place in local_places()]


def describe_model(path: Path, source: str, name: str) -> LocalModel:
    """Return the description of the model in a folder or GGUF file."""
    size_gb = _size(path) / 1e9
    try:
        profile = read_profile(path)
    except UnsupportedModelError as error:
        return LocalModel(source, size_gb, str(error), name, path)
    verdict = None if profile.is_exact else verdicts.at(path)
    if verdict is not None and verdict.support is None:
        problem = f"it was compared with mlx-lm here, and is {verdict.words}"
        return LocalModel(source, size_gb, problem, name, path)
    return LocalModel(source, size_gb, "", name, path, profile, verdict)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
