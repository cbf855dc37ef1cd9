"""What the app tells a newcomer: facts about this machine and the model that will answer."""

from os.path import expanduser
from pathlib import Path

from mlxspec.device import backend
from mlxspec.loading import list_local_models
from mlxspec.loading.fetch.default_model import FILE_BYTES
from mlxspec.params import DEFAULT_MODEL
from mlxspec_app.picker.introduction import Introduction

_NAMES = {"cpu": "the CPU", "metal": "the GPU, by Metal", "cuda": "the GPU, by CUDA"}


def introduce(model: str) -> Introduction:
    """Return the facts; imports MLX.

    Args:
        model: The model asked for, "" for the default one.
    """
    facts = backend.facts()
    size_gb = _size_gb(model)
    return Introduction(
        device=facts.device,
        cores=facts.cores,
        memory_gb=facts.memory_gb,
        computes_on=_NAMES.get(facts.backend, "nothing yet"),
        blas=facts.blas,
        is_slow=facts.is_stock_blas,
        model=model or DEFAULT_MODEL,
        model_gb=FILE_BYTES / backend.GB if size_gb is None and not model else size_gb,
        has_model=size_gb is not None,
    )


def _size_gb(model: str) -> float | None:
    """Return the size of a model on this disk in GB, or None where it is not here."""
    path = Path(expanduser(model))
    if model and path.exists():
        files = [path] if path.is_file() else path.glob("*.safetensors")
        return sum(file.stat().st_size for file in files) / backend.GB
    here = {local.source: local.size_gb for local in list_local_models()}
    return here.get(model or "default")
