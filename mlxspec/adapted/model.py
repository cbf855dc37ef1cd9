"""A model of mlx-lm with the interface of our own: trees in, hidden states and logits out.

The model's code is not changed. Its caches are leaves that answer for our cache (`leaves.py`); its
rotary modules, recurrent layers and decoder layers are overridden, each instance on its own. The
head is found without a name: it is the model with the backbone replaced by its result.
"""

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.adapted.anatomy import Anatomy, MasksAsked, anatomy
from mlxspec.adapted.config import AdaptedConfig, context_length, named_numbers, named_sizes
from mlxspec.adapted.current import AnyCache, Current, Part
from mlxspec.adapted.layers import catch, watch
from mlxspec.adapted.leaves import LeafPlan
from mlxspec.adapted.mixers import branch
from mlxspec.adapted.override import mark, places, restore
from mlxspec.adapted.positions import position_embedding, position_rotation
from mlxspec.adapted.products import faster_products
from mlxspec.device.packed import Quantization
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks
from mlxspec.models import CacheKind, DraftSupport

_MARK = "adapted_by_mlxspec"
_SAME = 1e-3  # of the largest number: parts repeat the very operations of the whole
_SAME_HALF = 3e-2  # the same, in half precision
_FAR = 1 << 16  # a position far from 0, where its use shows
_ROUNDING = 8  # times the rounding error of a pair of neighbours
_LEAST_ERROR = 1e-5


class AdaptedModel:
    """A model that mlx-lm has loaded, as a target.

    Attributes:
        config: Facts of the model.
        draft_support: The drafts that it can verify.
        supports_batches: Whether one forward can run several sequences.
        draft_limits: Why it can verify no other drafts, in words; "" where it verifies all.
        refused_caches: The kinds of cache over which it is not exact, and why, in words.
        source: The model of mlx-lm.
    """

    def __init__(self, source: nn.Module, eos_token_ids: Sequence[int] = ()) -> None:
        """Adapt a model; its instances are changed until this object is gone, its classes never.

        Raises:
            UnsupportedModelError: Its caches are of a kind that is not known, or it cannot run.
        """
        self.source = source
        self.draft_support: DraftSupport = "tree"
        self.supports_batches = True
        self.draft_limits = ""
        self.refused_caches: dict[CacheKind, str] = {}
        self._current = Current()
        self._has_parts: bool | None = None  # None: not examined yet
        self._attends_packed: dict[Quantization, bool] = {}
        plan = LeafPlan(self._current)
        self._leaves = [plan.leaf(cache) for cache in make_prompt_cache(source)]
        self._row_leaves = plan.row_leaves
        parts = self._recorded(plan)
        self._override(parts)
        self._embedding = parts.embedding
        self._backbone = parts.backbone
        self._layers = parts.layers
        args = getattr(source, "args", None)
        numbers = [heads * size for heads, size in self._row_shapes]  # of all keys, then values
        pairs = zip(numbers[: plan.num_rows], numbers[plan.num_rows :], strict=True)
        row_numbers = tuple(map(sum, pairs))
        self.config = AdaptedConfig(
            model_type=getattr(source, "model_type", type(source).__module__.rsplit(".", 1)[-1]),
            vocab_size=self._vocab_size,
            hidden_size=parts.hidden_size if parts.backbone is not None else self._vocab_size,
            num_hidden_layers=len(parts.layers),
            num_row_stores=plan.num_rows,
            num_states=plan.num_states,
            head_dim=math.gcd(*(size for _, size in self._row_shapes)),
            kv_numbers=sum(row_numbers),
            row_numbers=row_numbers,
            max_position_embeddings=context_length(args),
            layer_windows=tuple(parts.windows),
            row_windows=plan.row_windows,
            eos_token_ids=tuple(eos_token_ids),
            **named_sizes(args),
            **named_numbers(args),
        )
        self._folds = False
        self._folds = self._reads_positions()

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
        """Run all layers over `tokens`, as `mlxspec.models.Model.hidden_states` does."""
        offset = positions if isinstance(positions, int) else getattr(cache, "offset", 0)
        if name := self._replaced():
            raise UnsupportedOperationError(
                f"{name} of this model was replaced after the model was wrapped, so drafts would "
                "be read wrongly: wrap the model again"
            )
        shape = (tokens.shape[0], tokens.shape[1])
        folded = shape if self._folds and not isinstance(positions, int) else None
        packing = self._packing_for(cache)
        try:
            with self._current.run(cache, positions, offset, masks, capture, folded=folded):
                self._current.packing = packing
                rows = tokens if folded is None else tokens.reshape(-1, 1)
                result = self.source(rows, cache=self._leaves)
                final = result if self._backbone is None else self._current.final
                captured = [self._entering(layer) for layer in capture]
        finally:
            for leaf in self._row_leaves:
                leaf.release()
        if folded and final is not None:
            final = final.reshape(*shape, -1)
            captured = [state.reshape(*shape, -1) for state in captured]
        assert final is not None
        return final, captured

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits (..., V) of (..., D) outputs of `hidden_states`."""
        if self._backbone is None:
            return hidden
        rows = hidden.reshape(1, -1, hidden.shape[-1])
        self._current.replay = rows
        try:
            logits: mx.array = self.source(mx.zeros((1, rows.shape[1]), mx.int32))
        finally:
            self._current.replay = None
        return logits.reshape(*hidden.shape[:-1], -1)

    def head_rows(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        """Return a map of (..., D) to the logits (..., n) of (n,) int32 tokens.

        The whole head is computed: a model of mlx-lm names no matrix of which rows could be taken.
        """
        return lambda hidden: self.logits(hidden)[..., token_ids]

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings (..., D) of (...) int32 tokens."""
        if self._embedding is None:
            raise UnsupportedOperationError(
                "this model embeds tokens in a way of its own, which no EAGLE head and no trained "
                "draft model can share: choose 'pool', 'medusa' or a table"
            )
        embeddings: mx.array = self._embedding(tokens)
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
        """Run consecutive layers, as `mlxspec.models.Model.run_layers` does.

        All other layers return what enters them. The first call finds out whether the parts of
        this model, one after the other, are the whole.

        Raises:
            UnsupportedOperationError: They are not, or a layer has a recurrent state.
        """
        self._check_parts()
        return self._run_part(Part(layers, x), cache, positions, masks, capture)

    def norm(self, x: mx.array) -> mx.array:
        """Return the final norm (..., D) of the last layer's output; see `run_layers`."""
        self._check_parts()
        return self._norm(x)

    def _packing_for(self, cache: AnyCache) -> Quantization | None:
        """Return how the rows are packed that attention gets; None where it needs plain ones.

        mlx-lm's attention multiplies packed rows; one with sinks, and a model that looks into its
        keys, cannot. A forward tells, once.
        """
        packing: Quantization | None = getattr(cache, "quantization", None)
        if packing is None or self._folds:
            return None
        if packing not in self._attends_packed:
            self._attends_packed[packing] = False  # while it is tried out, and if that fails
            self._attends_packed[packing] = self._is_exact_packed(packing)
        return packing if self._attends_packed[packing] else None

    def _is_exact_packed(self, packing: Quantization) -> bool:
        tokens, masks = mx.array([[3, 2]], mx.int32), MasksAsked()
        found = []
        try:
            for attended in (None, packing):
                cache = Cache.for_model(self.config, quantization=packing)
                cache.states.expect_text(2)
                with self._current.run(cache, 0, 0, masks):
                    self._current.packing = attended
                    logits = self.source(tokens, cache=self._leaves).astype(mx.float32)
                    mx.eval(logits)
                found.append(logits)
        except Exception:  # of somebody else's code, which meets a triple in place of an array
            return False
        finally:
            for leaf in self._row_leaves:
                leaf.release()
        plain, packed = found
        off = mx.abs(packed - plain).max() / mx.maximum(mx.abs(plain).max(), 1e-6)
        least = _SAME if self._dtype == mx.float32 else _SAME_HALF
        return bool((off < least).item())

    def _entering(self, layer: int) -> mx.array:
        if layer not in self._current.entering:
            raise UnsupportedOperationError(
                f"the states that enter layer {layer} of this model cannot be read, because its "
                "code does not call that layer: choose a drafter that reads none, such as 'pool' "
                "or a draft model, or train a table"
            )
        return self._current.entering[layer]

    def _run_part(
        self,
        part: Part,
        cache: AnyCache,
        positions: int | mx.array,
        masks: Masks,
        capture: Sequence[int],
    ) -> tuple[mx.array, list[mx.array]]:
        offset = positions if isinstance(positions, int) else getattr(cache, "offset", 0)
        with self._current.run(cache, positions, offset, masks, capture, part):
            self.source(mx.zeros(part.x.shape[:2], mx.int32), cache=self._leaves)
            captured = [self._current.entering[layer] for layer in capture]
        for leaf in self._row_leaves:
            leaf.release()
        assert part.result is not None
        return part.result, captured

    def _norm(self, x: mx.array) -> mx.array:
        rows = x.reshape(1, -1, x.shape[-1])
        # No layer runs, so no row is staged; the masks are asked for and not used.
        empty = Cache.for_model(self.config)
        with self._current.run(empty, 0, 0, MasksAsked(), (), Part(range(0), rows)):
            self.source(mx.zeros(rows.shape[:2], mx.int32), cache=self._leaves)
            final = self._current.final
        assert final is not None
        return final.reshape(x.shape)

    def _check_parts(self) -> None:
        """Compare the layers in two parts with the whole, once."""
        if self._has_parts is None:
            self._has_parts = not (self._backbone is None or self.config.num_states or self._folds)
            self._has_parts = self._has_parts and self._are_parts_the_whole()
        if not self._has_parts:
            raise UnsupportedOperationError(
                "the layers of this model run as a whole only, so no early exit can draft for it: "
                "choose another drafter, such as 'pool', 'medusa' or 'eagle3'"
            )

    def _are_parts_the_whole(self) -> bool:
        tokens, masks = mx.array([[3, 2]], mx.int32), MasksAsked()
        number = self.config.num_hidden_layers
        middle = number // 2
        whole, _ = self.hidden_states(tokens, Cache.for_model(self.config), 0, masks)
        cache, x = Cache.for_model(self.config), self.embed(tokens)
        try:
            for layers in (range(middle), range(middle, number)):
                x, _ = self._run_part(Part(layers, x), cache, 0, masks, ())
            parts = self._norm(x)
        except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False  # a layer takes or returns more than its states
        off = mx.abs(parts - whole).max() / mx.maximum(mx.abs(whole).max(), 1e-6)
        return bool((off < _SAME).item())

    @staticmethod
    def of(source: nn.Module, eos_token_ids: Sequence[int] = ()) -> "AdaptedModel":
        """Return the adapted model of a model, the same one each time; arguments as in `__init__`.

        To adapt a model twice would override its parts twice. The end tokens are those of the last
        call. A model of which parts were replaced is adapted anew.
        """
        known: Callable[[], AdaptedModel | None] = getattr(type(source), _MARK, lambda: None)
        model = known()
        if model is None or model.source is not source:  # a copy has the classes of its original
            return AdaptedModel(source, eos_token_ids)
        if model._replaced():
            model._undo()
            return AdaptedModel(source, eos_token_ids)
        model.config = replace(model.config, eos_token_ids=tuple(eos_token_ids))
        return model

    def _replaced(self) -> str:
        """Return the name of a part that is overridden no more, because another took its place."""
        for name, holder, key, part in self._overridden:
            if holder[key] is not part:
                return name
        return ""

    def _override(self, parts: Anatomy) -> None:
        """Override the parts of the model for as long as this object lives."""
        current, last = self._current, len(parts.layers) - 1
        undo = faster_products(self.source, current)
        undo += [position_rotation(module, current) for module in parts.rotations]
        undo += [position_embedding(module, current) for module in parts.position_embeddings]
        undo += [branch(module, current) for module in parts.mixers]
        undo += [
            watch(layer, index, current, is_last=index == last)
            for index, layer in enumerate(parts.layers)
        ]
        if parts.backbone is not None:
            undo.append(catch(parts.backbone, current))
        # A weak reference: else the model would hold what holds it, and neither would be freed.
        undo.append(mark(self.source, **{_MARK: staticmethod(weakref.ref(self))}))
        self._undo = weakref.finalize(self, restore, undo)
        self._undo.atexit = False
        self._overridden = places(self.source, parts.all_overridden)

    @property
    def layers(self) -> list[nn.Module]:
        """The decoder layers, lowest first; they have the form that mlx-lm gives them."""
        return self._layers

    @property
    def dtype(self) -> mx.Dtype:
        """The floating-point type of its computations."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters."""
        return sum(array.nbytes for _, array in _arrays(self.source))

    # ---- finding the parts -----------------------------------------------------------------

    def _recorded(self, plan: "LeafPlan") -> Anatomy:
        cache = Cache(plan.num_rows, num_states=plan.num_states)
        cache.states.expect_text(2)
        masks = MasksAsked()
        tokens = mx.array([[3, 2]], mx.int32)

        def run() -> None:
            with self._current.run(cache, 0, 0, masks):
                logits = self.source(tokens, cache=self._leaves)
                self._vocab_size: int = logits.shape[-1]
                self._dtype: mx.Dtype = logits.dtype

        layers = getattr(self.source, "layers", None)
        if not isinstance(layers, list):
            raise UnsupportedModelError("the model names no `layers`")
        found = anatomy(self.source, layers, run)
        self._row_shapes = [(plane.shape[1], plane.shape[3]) for plane in cache.row_arrays]
        held = [leaf.window for leaf in plan.row_leaves if leaf.window is not None]
        found.windows = list(dict.fromkeys([*masks.windows, *held]))
        return found

    def _reads_positions(self) -> bool:
        """Return whether the model uses positions elsewhere than in the modules that were found.

        Two rows far apart tell: run as sequences of their own, each with its position, as mlx-lm
        runs a batch, they give other logits. Neighbours tell how large rounding errors are.
        """
        far = min(self.config.max_position_embeddings, _FAR) - 1
        try:
            return self._folding_error(far) > _ROUNDING * self._folding_error(1) + _LEAST_ERROR
        except (ValueError, TypeError, IndexError):
            return False  # its code takes one position for a whole batch

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
            mx.eval(logits)  # one after the other: ranks that share it would not agree on an order
        own, folded = logits
        return float(mx.max(mx.abs(own - folded)) / (mx.max(mx.abs(folded)) + 1e-9))


def _arrays(model: nn.Module) -> list[tuple[str, mx.array]]:
    flat: Any = tree_flatten(model.parameters())
    return list(flat)
