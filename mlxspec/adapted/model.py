"""A model of mlx-lm with the interface of our own: trees in, hidden states and logits out.

The model's code is not changed. Its caches are leaves that answer for our cache (`leaves.py`); its
rotary modules, recurrent layers and decoder layers are overridden, each instance on its own. The
head is found without a name: it is the model with the backbone replaced by its result.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from mlxspec.adapted.anatomy import Anatomy, anatomy
from mlxspec.adapted.config import AdaptedConfig, context_length
from mlxspec.adapted.current import AnyCache, Current
from mlxspec.adapted.leaves import LeafList, RowsLeaf, StateLeaf
from mlxspec.adapted.mixers import branch
from mlxspec.adapted.override import first_array, override
from mlxspec.adapted.positions import position_embedding, position_rotation
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks
from mlxspec.models import DraftSupport

_FAR = 1 << 16  # a position far from 0, where its use shows
_ROUNDING = 8  # times the rounding error of a pair of neighbours
_LEAST_ERROR = 1e-5

_ROW_CACHES = (KVCache, RotatingKVCache, ConcatenateKVCache, ChunkedKVCache)


class AdaptedModel:
    """A model that mlx-lm has loaded, as a target.

    Attributes:
        config: Facts of the model.
        draft_support: The drafts that it can verify.
        source: The model of mlx-lm.
    """

    def __init__(self, source: nn.Module, eos_token_ids: Sequence[int] = ()) -> None:
        """Adapt a model; its instances are changed, its classes are not.

        Raises:
            UnsupportedModelError: Its caches are of a kind that is not known, or it cannot run.
        """
        self.source = source
        self.draft_support: DraftSupport = "tree"
        self._current = Current()
        plan = _Leaves(self._current)
        self._leaves = [plan.leaf(cache) for cache in make_prompt_cache(source)]
        self._packed = plan.packed
        parts = self._recorded(plan)
        for module in parts.rotations:
            position_rotation(module, self._current)
        for module in parts.position_embeddings:
            position_embedding(module, self._current)
        for module in parts.mixers:
            branch(module, self._current)
        for index, layer in enumerate(parts.layers):
            self._watch(layer, index)
        self._embedding = parts.embedding
        self._backbone = parts.backbone
        if parts.backbone is not None:
            self._catch(parts.backbone)
        args = getattr(source, "args", None)
        self.config = AdaptedConfig(
            model_type=getattr(source, "model_type", type(source).__module__.rsplit(".", 1)[-1]),
            vocab_size=self._vocab_size,
            hidden_size=parts.hidden_size if parts.backbone is not None else self._vocab_size,
            num_hidden_layers=len(parts.layers),
            num_row_stores=plan.num_rows,
            num_states=plan.num_states,
            head_dim=math.gcd(*(size for _, size in self._row_shapes)),
            kv_numbers=sum(heads * size for heads, size in self._row_shapes),
            max_position_embeddings=context_length(args),
            layer_windows=tuple(parts.windows),
            eos_token_ids=tuple(eos_token_ids),
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
        shape = (tokens.shape[0], tokens.shape[1])
        folded = shape if self._folds and not isinstance(positions, int) else None
        with self._current.run(cache, positions, offset, masks, capture, folded):
            result = self.source(tokens.reshape(-1, 1) if folded else tokens, cache=self._leaves)
            final = result if self._backbone is None else self._current.final
            captured = [self._current.entering[layer] for layer in capture]
        if folded and final is not None:
            final = final.reshape(*shape, -1)
            captured = [state.reshape(*shape, -1) for state in captured]
        for leaf in self._packed:
            leaf.release()
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
            raise UnsupportedOperationError("this model embeds tokens in a way of its own")
        embeddings: mx.array = self._embedding(tokens)
        return embeddings

    def run_layers(self, *_: Any, **__: Any) -> tuple[mx.array, list[mx.array]]:
        """Refuse: the layers of a model of mlx-lm run as a whole.

        Raises:
            UnsupportedOperationError: Always.
        """
        raise UnsupportedOperationError("this model runs all of its layers, or none")

    def norm(self, x: mx.array) -> mx.array:
        """Refuse, as `run_layers`."""
        raise UnsupportedOperationError("this model runs all of its layers, or none")

    @property
    def dtype(self) -> mx.Dtype:
        """The floating-point type of its computations."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters."""
        return sum(array.nbytes for _, array in _arrays(self.source))

    # ---- finding the parts -----------------------------------------------------------------

    def _recorded(self, plan: "_Leaves") -> Anatomy:
        cache = Cache(plan.num_rows, num_states=plan.num_states)
        cache.states.expect_text(2)
        masks = _MasksAsked()
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
        held = [leaf.window for leaf in plan.packed if leaf.window is not None]
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
            cache = Cache(self.config.num_row_stores, num_states=self.config.num_states)
            cache.states.expect_rows([[-1, 0]])
            masks = dict.fromkeys(self.config.layer_windows, mask)
            final, _ = self.hidden_states(tokens, cache, positions, masks)
            logits.append(self.logits(final).astype(mx.float32))
        own, folded = logits
        return float(mx.max(mx.abs(own - folded)) / (mx.max(mx.abs(folded)) + 1e-9))

    def _watch(self, layer: nn.Module, index: int) -> None:
        current = self._current

        def around(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if index in current.capture:
                current.entering[index] = first_array([*args, *kwargs.values()])
            result = call(*args, **kwargs)
            if index + 1 == self.config.num_hidden_layers and index + 1 in current.capture:
                current.entering[index + 1] = result[0] if isinstance(result, tuple) else result
            return result

        override(layer, around)

    def _catch(self, backbone: nn.Module) -> None:
        current = self._current

        def around(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if current.replay is not None:
                return current.replay
            result = call(*args, **kwargs)
            if current.is_running:
                current.final = result
            return result

        override(backbone, around)


def _arrays(model: nn.Module) -> list[tuple[str, mx.array]]:
    flat: Any = tree_flatten(model.parameters())
    return list(flat)


class _MasksAsked(dict[int | None, Any]):
    """Answers for every window, and records which were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.windows: list[int | None] = []

    def __contains__(self, window: object) -> bool:
        return True

    def __getitem__(self, window: int | None) -> str:
        if window not in self.windows:
            self.windows.append(window)
        return "causal"


class _Leaves:
    """Makes a leaf for each cache of a model and numbers its rows and states."""

    def __init__(self, current: Current) -> None:
        self._current = current
        self.num_rows = 0
        self.num_states = 0
        self.packed: list[RowsLeaf] = []

    def leaf(self, cache: Any) -> Any:
        if isinstance(cache, CacheList):
            return LeafList([self.leaf(part) for part in cache.caches])
        if isinstance(cache, ArraysCache):
            self.num_states += 1
            return StateLeaf(self._current, self.num_states - 1, len(cache.cache))
        if type(cache) in _ROW_CACHES:
            self.num_rows += 1
            window = cache.max_size if isinstance(cache, RotatingKVCache) else None
            made = RowsLeaf(self._current, self.num_rows - 1, window)
            self.packed.append(made)
            return made
        raise UnsupportedModelError(f"a cache of the type {type(cache).__name__} is not known")
