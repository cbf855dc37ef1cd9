"""What the app tells a newcomer: facts about this machine and the model that will answer."""

from mlxspec.device import backend
from mlxspec.device.memory import usable_gb
from mlxspec.drafting.catalogue import find_model
from mlxspec.options import DEFAULT_MODEL
from mlxspec_app.picker.introduction import Introduction

_NAMES = {"cpu": "the CPU", "metal": "the GPU, by Metal", "cuda": "the GPU, by CUDA"}


def introduce(model: str) -> Introduction:
    """Return the facts; imports MLX.

    Args:
        model: The model asked for, "" for the default one.
    """
    facts = backend.facts()
    entry = find_model(model or "default")
    return Introduction(
        device=facts.device,
        cores=facts.cores,
        memory_gb=facts.memory_gb,
        computes_on=_NAMES.get(facts.backend, "nothing yet"),
        blas=facts.blas,
        is_slow=facts.is_stock_blas,
        model=model or DEFAULT_MODEL,
        model_gb=entry.size_gb if entry is not None else None,
        fit=entry.fit_in(usable_gb()) if entry is not None and not entry.problem else None,
        has_model=entry is not None and entry.is_here,
    )
