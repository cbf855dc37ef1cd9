"""The state of the model picker: models, their drafters, and what is loaded now."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from textual.content import Content

from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_app.picker.catalogue import gigabytes
from mlxspec_app.picker.model_rows import drafter_row, model_row, trouble

AUTO = "auto"


@dataclass
class Shelf:
    """Records from the catalogue, as they arrive."""

    current: ModelChoice  # loaded, or failed to load
    is_loaded: bool
    memory_gb: float
    models: Sequence[ModelEntry] = ()
    drafters: dict[str, Sequence[DrafterEntry]] = field(default_factory=dict)
    warned_of: str | None = None  # the last model that was called too large

    def model_rows(self) -> list[Content]:
        return [
            model_row(model, self.memory_gb, is_current=self._is_current(model))
            for model in self.models
        ]

    def model_index(self) -> int | None:
        """Return the initial index: the loaded model, else the first one."""
        return _first(self._is_asked(model) for model in self.models)

    def drafter_rows(self, source: str) -> list[Content]:
        model = next((each for each in self.models if each.source == source), None)
        now = self.current.drafter if model is not None and self._is_current(model) else ""
        drafters = self.drafters.get(source, ())
        return [drafter_row(each, is_current=each.drafter == now) for each in drafters]

    def drafter_index(self, source: str) -> int | None:
        """Return the initial index: the present drafter, else `auto`."""
        name = self.current.drafter if source == self.current.model else AUTO
        return _first(each.drafter == name for each in self.drafters.get(source, ()))

    def model_at(self, index: int | None) -> ModelEntry | None:
        return self.models[index] if index is not None and index < len(self.models) else None

    def drafter_at(self, source: str, index: int | None) -> DrafterEntry | None:
        drafters = self.drafters.get(source, ())
        return drafters[index] if index is not None and index < len(drafters) else None

    def obstacle(self, model: ModelEntry) -> Content | None:
        """Return why a model is not loaded at once; warns once if it is too large."""
        if model.problem:
            return trouble("cannot be chosen", model.problem)
        if model.fit_in(self.memory_gb) != "too large" or self.warned_of == model.source:
            return None
        self.warned_of = model.source
        why = f"it takes {gigabytes(model.memory_gb)} of {gigabytes(self.memory_gb)}"
        return trouble("it does not fit in memory", why, "press the key again to go on anyway")

    def pair(self, source: str, drafter: DrafterEntry | None = None) -> ModelChoice:
        """Return the models to load, with the present cache setting."""
        name = drafter.drafter if drafter is not None else AUTO
        return ModelChoice(source, name, self.current.max_kv_size)

    def _is_current(self, model: ModelEntry) -> bool:
        return self.is_loaded and self._is_asked(model)

    def _is_asked(self, model: ModelEntry) -> bool:
        return self.current.model in (model.source, model.name)


def _first(matches: Iterable[bool]) -> int | None:
    """Return the index of the first match, else 0, else None if there is nothing."""
    found = list(matches)
    return found.index(True) if True in found else 0 if found else None
