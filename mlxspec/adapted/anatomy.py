"""Finds the parts of a model that a tree needs, by one recorded forward of two tokens.

Attribute names differ between model files; the calls between modules do not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.adapted.leaves import LeafList, StateLeaf
from mlxspec.adapted.override import override, restore
from mlxspec.adapted.positions import rotates


@dataclass
class Anatomy:
    """The parts of one model."""

    layers: list[nn.Module]  # the decoder layers, lowest first
    backbone: nn.Module | None = None  # calls the layers; None if the model itself calls them
    rotations: list[nn.Module] = field(default_factory=list)  # modules that rotate rows
    position_embeddings: list[nn.Module] = field(default_factory=list)  # learned ones
    mixers: list[nn.Module] = field(default_factory=list)  # modules with a recurrent state
    embedding: nn.Module | None = None
    windows: list[int | None] = field(default_factory=list)  # of the masks that it requests
    hidden_size: int = 0  # width of the states


def anatomy(model: nn.Module, layers: Sequence[nn.Module], run: Callable[[], Any]) -> Anatomy:
    """Return the parts that `run` uses: a forward over two tokens, not 0 or 1, over our leaves."""
    found = Anatomy(list(layers))
    recorder = _Recorder(found)
    undo = [override(module, recorder.around(module)) for module in modules_of(model)]
    try:
        run()
    finally:
        restore(undo)
    if found.backbone is model:
        found.backbone = None
    return found


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Return the modules of a model, each once, even if several parts share it."""
    return list({id(module): module for module in model.modules()}.values())


class _Recorder:
    def __init__(self, found: Anatomy) -> None:
        self._found = found
        self._stack: list[nn.Module] = []
        self._layers = {id(layer) for layer in found.layers}
        self._with_state: dict[int, set[int]] = {}  # per depth of the stack, states used below it

    def around(self, module: nn.Module) -> Callable[..., Any]:
        # Checked before recording, which hides the names in `__call__`.
        is_rotation = rotates(module)

        def record(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if id(module) in self._layers and self._found.backbone is None and self._stack:
                self._found.backbone = self._stack[-1]
            self._stack.append(module)
            own = {id(leaf) for leaf in _state_leaves([*args, *kwargs.values()])}
            below = self._with_state.setdefault(len(self._stack), set())
            below.clear()
            try:
                result = call(*args, **kwargs)
            finally:
                self._stack.pop()
            used = self._with_state.get(len(self._stack) + 1, set())
            if own - used:
                _add(self._found.mixers, module)
            self._with_state.setdefault(len(self._stack), set()).update(own | used)
            if is_rotation:
                _add(self._found.rotations, module)
            self._note(module, args, result)
            return result

        return record

    def _note(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if module is self._found.backbone and isinstance(result, mx.array):
            self._found.hidden_size = result.shape[-1]
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding) and args:
            ids = args[0]
            if ids.shape[-1:] == (2,) and ids.reshape(-1).tolist() == [0, 1]:
                _add(self._found.position_embeddings, module)
            elif self._found.embedding is None:
                self._found.embedding = module


def _state_leaves(values: Sequence[Any]) -> list[StateLeaf]:
    leaves: list[StateLeaf] = []
    for value in values:
        if isinstance(value, StateLeaf):
            leaves.append(value)
        elif isinstance(value, LeafList):
            leaves.extend(_state_leaves(value.caches))
    return leaves


def _add(modules: list[nn.Module], module: nn.Module) -> None:
    if all(module is not other for other in modules):
        modules.append(module)


class MasksAsked(dict[int | None, Any]):
    """Answers for every window, and records the requested ones."""

    def __init__(self) -> None:
        super().__init__()
        self.windows: list[int | None] = []

    def __contains__(self, window: object) -> bool:
        return True

    def __getitem__(self, window: int | None) -> str:
        if window not in self.windows:
            self.windows.append(window)
        return "causal"
