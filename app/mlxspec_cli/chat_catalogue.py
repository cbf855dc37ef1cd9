"""The catalogue of models and drafters as the app's model picker takes it.

What knows them leans on MLX, which the first frame of the app does not wait for.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

from mlxspec.device.memory import usable_gb
from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec_cli.importing import IMPORTING

_DEFAULT = "default"


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
