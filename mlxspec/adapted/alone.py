"""Runs some layers of an adapted model without the others, for early exits.

A model of mlx-lm runs from tokens to logits. With hooks, all layers outside a part return their
input. A model may pass more than the states from layer to layer, so one test checks that the parts
in sequence equal the whole.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.adapted.anatomy import MasksAsked
from mlxspec.adapted.config import AdaptedConfig
from mlxspec.adapted.current import AnyCache, Part
from mlxspec.adapted.hooked import HookedModel
from mlxspec.device.backend import values
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks

SAME = 1e-3
"""Relative to the largest number: parts repeat exactly the operations of the whole."""


class LayersAlone:
    """The layers of one model, to be run in parts."""

    def __init__(self, hooked: HookedModel, config: AdaptedConfig, *, folds: bool) -> None:
        """Use the layers of a model; `folds` says that its rows run as separate sequences."""
        self._hooked = hooked
        self._config = config
        cannot = hooked.parts.backbone is None or config.num_states or folds
        self._are_whole = False if cannot else None  # None: not examined yet

    def run(
        self,
        part: Part,
        cache: AnyCache,
        positions: int | mx.array,
        masks: Masks,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        """Return the (B, L, D) states after a part, and those that enter the captured layers.

        A caller that needs the parts to equal the whole calls `check` first.
        """
        tokens = mx.zeros(part.x.shape[:2], mx.int32)
        _, captured = self._hooked.forward(
            tokens, cache, positions, masks, capture=capture, part=part
        )
        assert part.result is not None
        return part.result, captured

    def norm(self, x: mx.array) -> mx.array:
        """Return the final norm (..., D) of the last layer's output; see `run`."""
        rows = x.reshape(1, -1, x.shape[-1])
        # No layer runs, so no row is staged; the masks are requested but not used.
        tokens, empty = mx.zeros(rows.shape[:2], mx.int32), Cache.for_model(self._config)
        part = Part(range(0), rows)
        final, _ = self._hooked.forward(tokens, empty, 0, MasksAsked(), part=part)
        return final.reshape(x.shape)

    def check(self) -> None:
        """Compare the layers in two parts with the whole, once.

        Raises:
            UnsupportedOperationError: The parts of this model do not equal the whole.
        """
        if self._are_whole is None:
            self._are_whole = self._compared()
        if not self._are_whole:
            raise UnsupportedOperationError(
                "the layers of this model run as a whole only, so no early exit can draft for it: "
                "choose another drafter, such as 'pool', 'medusa' or 'eagle3'"
            )

    def _compared(self) -> bool:
        tokens, masks = mx.array([[3, 2]], mx.int32), MasksAsked()
        number = self._config.num_hidden_layers
        middle, embedding = number // 2, self._hooked.parts.embedding
        if embedding is None:
            return False
        whole, _ = self._hooked.forward(tokens, Cache.for_model(self._config), 0, masks)
        cache, x = Cache.for_model(self._config), embedding(tokens)
        try:
            for layers in (range(middle), range(middle, number)):
                x, _ = self.run(Part(layers, x), cache, 0, masks)
            parts = self.norm(x)
        except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False  # a layer takes or returns more than its states
        return largest_error(parts, whole) < SAME


def largest_error(found: mx.array, truth: mx.array) -> float:
    """Return the largest difference of two arrays, relative to the largest number of `truth`."""
    error: float = values(mx.abs(found - truth).max() / mx.maximum(mx.abs(truth).max(), 1e-6))
    return error
