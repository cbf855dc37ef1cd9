"""The catalogue of models and drafters as the app's model picker takes it.

What knows them leans on MLX, which the first frame of the app does not wait for.
"""

from dataclasses import asdict
from functools import cached_property
from typing import Any

from mlxspec.device.memory import usable_gb
from mlxspec_app.picker.catalogue import DrafterRecord, ModelRecord
from mlxspec_cli.importing import IMPORTING

_DEFAULT = "default"


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
