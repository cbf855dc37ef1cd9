"""A model of mlx-lm with the interface of our own: trees in, hidden states and logits out.

Its code is not changed: it runs with hooks (`hooked.py`) over our caches. Some differences between
models have no name, such as whether rows must run as separate sequences; forwards over two tokens
detect these.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxspec.adapted.anatomy import MasksAsked
from mlxspec.adapted.current import AnyCache, Forward, Part
from mlxspec.adapted.hooked import HookedModel
from mlxspec.device.backend import values
from mlxspec.device.packed import Quantization
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks
from mlxspec.models import CacheKind, DraftSupport

_MARK = "adapted_by_mlxspec"
_SAME = 1e-3  # parts repeat exactly the operations of the whole
_SAME_HALF = 3e-2  # replaces it in half precision
_FAR = 1 << 16  # a position far from 0, so that its use becomes visible
_ROUNDING = 8  # multiple of the rounding error of two neighbours
_LEAST_ERROR = 1e-5


class AdaptedModel:
    """A model that mlx-lm has loaded, as a target; attributes and methods as in `TargetModel`."""

    def __init__(self, source: nn.Module, eos_token_ids: Sequence[int] = ()) -> None:
        """Adapt a model; its instances are changed while this object lives, its classes never."""
        self.source = source
        self.draft_support: DraftSupport = "tree"
        self.supports_batches = True
        self.draft_limits = ""
        self.refused_caches: Mapping[CacheKind, str] = {}
        self._attends_packed: dict[Quantization, bool] = {}
        self._hooked = HookedModel(source)
        # A weak reference: a strong one would form a cycle, and neither would be freed.
        self._hooked.mark(**{_MARK: staticmethod(weakref.ref(self))})
        self.config = self._hooked.config(eos_token_ids)
        self._folds = False
        self._folds = self._reads_positions()
        parts_fail = self._hooked.parts.backbone is None or self.config.num_states or self._folds
        self._runs_in_parts = False if parts_fail else None  # None: not examined yet

    # ---- running ---------------------------------------------------------------------------

    def hidden_states(
        self,
        tokens: mx.array,
        cache: AnyCache,
        positions: int | mx.array,
        masks: Masks,
        *,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        if name := self._hooked.replaced():
            raise UnsupportedOperationError(
                f"{name} of this model was replaced after the model was wrapped, so drafts would "
                "be read wrongly: wrap the model again"
            )
        shape = (tokens.shape[0], tokens.shape[1])
        folded = shape if self._folds and not isinstance(positions, int) else None
        packing = self._packing_for(cache)
        forward = Forward(cache, positions, masks, capture, folded=folded, packing=packing)
        final, captured = self._hooked.forward(tokens, forward)
        if folded:
            final = final.reshape(*shape, -1)
            captured = [state.reshape(*shape, -1) for state in captured]
        return final, captured

    def logits(self, hidden: mx.array) -> mx.array:
        if self._hooked.parts.backbone is None:
            return hidden
        logits = self._hooked.head(hidden.reshape(1, -1, hidden.shape[-1]))
        return logits.reshape(*hidden.shape[:-1], -1)

    def head_rows(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        # The whole head: a model of mlx-lm does not expose a matrix whose rows could be selected.
        return lambda hidden: self.logits(hidden)[..., token_ids]

    def embed(self, tokens: mx.array) -> mx.array:
        embedding = self._hooked.parts.embedding
        if embedding is None:
            raise UnsupportedOperationError(
                "this model embeds tokens in a way of its own, which no EAGLE head and no trained "
                "draft model can share: choose 'pool', 'medusa' or a table"
            )
        embeddings: mx.array = embedding(tokens)
        return embeddings

    def run_layers(
        self,
        x: mx.array,
        cache: AnyCache,
        positions: int | mx.array,
        masks: Masks,
        layers: range,
        *,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        """Run consecutive layers; the first call checks that the parts are the whole."""
        self._check_parts()
        return self._part(Forward(cache, positions, masks, capture, Part(layers, x)))

    def norm(self, x: mx.array) -> mx.array:
        self._check_parts()
        return self._norm(x)

    def _part(self, forward: Forward) -> tuple[mx.array, list[mx.array]]:
        part = forward.part
        assert part is not None
        _, captured = self._hooked.forward(mx.zeros(part.x.shape[:2], mx.int32), forward)
        assert part.result is not None
        return part.result, captured

    def _norm(self, x: mx.array) -> mx.array:
        rows = x.reshape(1, -1, x.shape[-1])
        # No layer runs, so no row is staged; the masks are requested but not used.
        tokens, empty = mx.zeros(rows.shape[:2], mx.int32), Cache.for_model(self.config)
        forward = Forward(empty, 0, MasksAsked(), part=Part(range(0), rows))
        final, _ = self._hooked.forward(tokens, forward)
        return final.reshape(x.shape)

    @staticmethod
    def of(source: nn.Module, eos_token_ids: Sequence[int] = ()) -> "AdaptedModel":
        """Return the adapted model of a model, the same object until a part of it is replaced."""
        # Adapting a model twice would override its parts twice.
        known: Callable[[], AdaptedModel | None] = getattr(type(source), _MARK, lambda: None)
        model = known()
        if model is None or model.source is not source:  # a copy has the classes of its original
            return AdaptedModel(source, eos_token_ids)
        if model._hooked.replaced():
            model._hooked.unhook()
            return AdaptedModel(source, eos_token_ids)
        model.config = replace(model.config, eos_token_ids=tuple(eos_token_ids))
        return model

    @property
    def layers(self) -> list[nn.Module]:
        return self._hooked.parts.layers

    @property
    def dtype(self) -> mx.Dtype:
        return self._hooked.dtype

    @property
    def nbytes(self) -> int:
        flat: Any = tree_flatten(self.source.parameters())
        return sum(array.nbytes for _, array in flat)

    # ---- finding out -----------------------------------------------------------------------

    def _reads_positions(self) -> bool:
        """Return whether the model uses positions outside the modules that were found.

        Then two distant rows differ when they run as separate sequences, as in a batch of mlx-lm.
        Neighbours show how large rounding errors are.
        """
        far = min(self.config.max_position_embeddings, _FAR) - 1
        try:
            return self._folding_error(far) > _ROUNDING * self._folding_error(1) + _LEAST_ERROR
        except (ValueError, TypeError, IndexError):
            return False  # its code supports only one position for a whole batch

    def _folding_error(self, second: int) -> float:
        tokens, positions = mx.array([[3, 2]], mx.int32), mx.array([0, second], mx.int32)
        mask = mx.array([[True, False], [True, True]])
        logits = []
        for self._folds in (False, True):
            cache = Cache.for_model(self.config)
            cache.states.expect_rows([[-1, 0]])
            masks = dict.fromkeys(self.config.layer_windows, mask)
            final, _ = self.hidden_states(tokens, cache, positions, masks)
            logits.append(self.logits(final).astype(mx.float32))
            mx.eval(logits)  # sequentially: ranks that share it would not agree on an order
        return relative_error(*logits)

    def _check_parts(self) -> None:
        if self._runs_in_parts is None:
            self._runs_in_parts = self._are_parts_the_whole()
        if not self._runs_in_parts:
            raise UnsupportedOperationError(
                "the layers of this model run as a whole only, so no early exit can draft for it: "
                "choose another drafter, such as 'pool', 'medusa' or 'eagle3'"
            )

    def _are_parts_the_whole(self) -> bool:
        tokens, masks = mx.array([[3, 2]], mx.int32), MasksAsked()
        number, embedding = self.config.num_hidden_layers, self._hooked.parts.embedding
        if embedding is None:
            return False
        whole, _ = self._hooked.forward(tokens, Forward(Cache.for_model(self.config), 0, masks))
        cache, x = Cache.for_model(self.config), embedding(tokens)
        try:
            for layers in (range(number // 2), range(number // 2, number)):
                x, _ = self._part(Forward(cache, 0, masks, part=Part(layers, x)))
            parts = self._norm(x)
        except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False  # a layer takes or returns more than its states
        return relative_error(parts, whole) < _SAME

    def _packing_for(self, cache: AnyCache) -> Quantization | None:
        """Return how rows are packed if this model's attention can read them so, else None."""
        packing: Quantization | None = getattr(cache, "quantization", None)
        if packing is None or self._folds:
            return None
        if packing not in self._attends_packed:  # attention with sinks cannot, for one
            self._attends_packed[packing] = False  # during the trial, and after a failed one
            self._attends_packed[packing] = self._is_exact_packed(packing)
        return packing if self._attends_packed[packing] else None

    def _is_exact_packed(self, packing: Quantization) -> bool:
        tokens, masks = mx.array([[3, 2]], mx.int32), MasksAsked()
        found = []
        try:
            for attended in (None, packing):
                cache = Cache.for_model(self.config, quantization=packing)
                cache.states.expect_text(2)
                final, _ = self._hooked.forward(tokens, Forward(cache, 0, masks, packing=attended))
                found.append(self.logits(final).astype(mx.float32))
                mx.eval(found)
        except Exception:  # third-party code that gets a triple instead of an array
            return False
        plain, packed = found
        most = _SAME if self.dtype == mx.float32 else _SAME_HALF
        return relative_error(packed, plain) < most


def relative_error(got: mx.array, want: mx.array) -> float:
    """Return the largest difference, relative to the largest number of `want`."""
    got, want = got.astype(mx.float32), want.astype(mx.float32)
    error: float = values(mx.abs(got - want).max() / mx.abs(want).max())
    return error
