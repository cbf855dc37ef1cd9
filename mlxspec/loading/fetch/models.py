"""Models to choose from: those on this disk, and a short, dated list of those worth fetching."""

import tomllib
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from mlxspec.adapted.config import Admission
from mlxspec.device import backend
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import admissions
from mlxspec.loading.fetch.sources import local_places
from mlxspec.loading.profile import ModelProfile, read_profile

_FLOAT_GB = 4.0  # of a billion weights that are unpacked to float32


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


@dataclass(frozen=True)
class Offer:
    """A model on the hub."""

    repository: str
    licence: str  # in one or two words
    download_gb: float
    weights: float  # in billions
    active: float  # those that one token reads, in billions

    @property
    def memory_gb(self) -> float:
        """GB of its weights on this machine: as stored on a GPU, unpacked on a CPU."""
        stays = backend.keeps_weights_as_stored()
        return self.download_gb if stays else _FLOAT_GB * self.weights

    @property
    def read_gb(self) -> float:
        """GB of weights that a plain forward reads on this machine."""
        return self.memory_gb * self.active / self.weights


@cache
def offers() -> tuple[Offer, ...]:
    """Return the models that are worth fetching, from small to large."""
    return tuple(
        Offer(**{"active": model["weights"], **model}) for model in _content().get("model", ())
    )


def offers_date() -> date:
    """Return the day of the last review of the list."""
    return cast(date, _content()["date"])


def _content() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "offers.toml").read_text(encoding="utf-8"))
