"""What the app is told of this machine while it runs: the facts, the models, their drafters.

What knows them leans on MLX and transformers, which the first frame of the app does not wait for.
Threads beside the screen import that: one at a time, for two in the midst of importing
transformers each find half of it.
"""

from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

from mlxspec.device import backend
from mlxspec.device.memory import usable_gb
from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec.params import DEFAULT_MODEL
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

    def models(self) -> list[ModelEntry]:
        with IMPORTING:
            from mlxspec.drafting.catalogue import list_models

        return [
            replace(entry, source="") if entry.source == _DEFAULT else entry
            for entry in list_models()
        ]

    def drafters(self, source: str) -> list[DrafterEntry]:
        found: list[DrafterEntry] = self._finder.find(source or _DEFAULT)
        return found

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
        from mlxspec.drafting.catalogue import find_model

    facts = backend.facts()
    entry = find_model(model or _DEFAULT)
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
