"""The facts about this machine for the app: the device, the models, their drafters.

They need MLX and transformers, whose import would delay the first frame, so background threads
import them. Only one thread may import at a time: two concurrent imports of transformers each see a
half-initialised module.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

from mlxspec.device import backend
from mlxspec.device.memory import usable_gb
from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec.params import DEFAULT_MODEL, Options
from mlxspec_app.picker.introduction import Introduction

IMPORTING = Lock()
"""Held during each import that needs MLX."""

_DEFAULT = "default"
_NAMES = {"cpu": "the CPU", "metal": "the GPU, by Metal", "cuda": "the GPU, by CUDA"}


class ChatCatalogue:
    """Lists models and drafters; implements `mlxspec_app.picker.catalogue.Catalogue`."""

    def __init__(self, options: Options | None = None) -> None:
        """`options` are those with which models are loaded."""
        self._options = options or Options()

    @property
    def memory_gb(self) -> float:
        return usable_gb()

    def models(self) -> list[ModelEntry]:
        with IMPORTING:
            from mlxspec.drafting.catalogue import list_models, list_offers

        return [
            replace(entry, source="") if entry.source == _DEFAULT else entry
            for entry in (*list_models(), *list_offers())
        ]

    def fetch(self, source: str, on_progress: Callable[[int, int], None]) -> None:
        with IMPORTING:
            from mlxspec.loading.fetch.sources import find_source

        find_source(source or _DEFAULT, on_progress)

    def drafters(self, source: str, max_kv_size: int | None = None) -> list[DrafterEntry]:
        options = replace(self._options, max_kv_size=max_kv_size)
        found: list[DrafterEntry] = self._finder.find(source or _DEFAULT, options)
        return found

    def forget_verdict(self, source: str, max_kv_size: int | None = None) -> None:
        options = replace(self._options, max_kv_size=max_kv_size)
        self._finder.forget_verdict(source or _DEFAULT, options)

    @cached_property
    def _finder(self) -> Any:
        with IMPORTING:
            from mlxspec.drafting.catalogue import DrafterFinder

        return DrafterFinder()


def introduce(model: str) -> Introduction:
    """Return the facts for the cards of the first run; `model` "" means the default one."""
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
