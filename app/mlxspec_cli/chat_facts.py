"""What the app is told of this machine while it runs: the facts, the models, their drafters.

What knows them leans on MLX and transformers, which the first frame of the app does not wait for.
Threads beside the screen import that: one at a time, for two in the midst of importing
transformers each find half of it.
"""

from dataclasses import asdict
from functools import cached_property
from os.path import expanduser
from pathlib import Path
from threading import Lock
from typing import Any

from mlxspec.device import backend
from mlxspec.device.memory import usable_gb
from mlxspec.params import DEFAULT_MODEL
from mlxspec_app.picker.catalogue import DrafterRecord, ModelRecord
from mlxspec_app.picker.introduction import Introduction

IMPORTING = Lock()
"""Held while anything is imported that leans on MLX."""

_DEFAULT = "default"
_NAMES = {"cpu": "the CPU", "metal": "the GPU, by Metal", "cuda": "the GPU, by CUDA"}


class ChatCatalogue:
    """Tells the app what is here; see `mlxspec_app.picker.catalogue.Catalogue` for its methods."""

    @property
    def memory_gb(self) -> float:
        return usable_gb()

    def models(self) -> list[ModelRecord]:
        with IMPORTING:
            from mlxspec.drafting.catalogue import list_models

        records = []
        for entry in list_models():
            facts = asdict(entry) | {"source": "" if entry.source == _DEFAULT else entry.source}
            records.append(ModelRecord(**facts, fit=entry.fit_in(self.memory_gb)))
        return records

    def drafters(self, source: str) -> list[DrafterRecord]:
        return [DrafterRecord(**asdict(entry)) for entry in self._finder.find(source or _DEFAULT)]

    @cached_property
    def _finder(self) -> Any:
        with IMPORTING:
            from mlxspec.drafting.catalogue import DrafterFinder

        return DrafterFinder()


def introduce(model: str) -> Introduction:
    """Return what a newcomer is told of this machine and of the model that will answer.

    Args:
        model: The model asked for, "" for the default one.
    """
    with IMPORTING:
        from mlxspec.loading.fetch.default_model import FILE_BYTES

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
    from mlxspec.loading import list_local_models

    path = Path(expanduser(model))
    if model and path.exists():
        files = [path] if path.is_file() else path.glob("*.safetensors")
        return sum(file.stat().st_size for file in files) / backend.GB
    here = {local.source: local.size_gb for local in list_local_models()}
    return here.get(model or _DEFAULT)
