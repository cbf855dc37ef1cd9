"""A model of mlx-lm with hooks in its parts, and one forward of it over a cache of ours.

The head needs no name: it is the model with the backbone replaced by its result.

Some CPUs multiply the few rows of a draft fastest in pieces (`device/products.py`); MLX's own
layers pass them to the BLAS whole. Then a draft of four rows costs more than its tokens save, so
dense layers multiply as those of our ports do; the products are equal up to rounding. Only large
matrices are shared among cores: for a small one, starting and waiting take as long as the product.

mlx-lm's attention calls MLX's kernel with all rows at once, of which a GPU's takes some
(`device/attention.py`). A layer's own code runs with globals in which that function is ours.
"""

import math
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import base
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.adapted.anatomy import Anatomy, MasksAsked, anatomy, modules_of
from mlxspec.adapted.config import context_length, named_numbers, named_sizes
from mlxspec.adapted.current import Current, Forward
from mlxspec.adapted.leaves import LeafPlan
from mlxspec.adapted.mixers import branch
from mlxspec.adapted.override import Undo, first_array, mark, override, places, restore
from mlxspec.adapted.positions import position_embedding, position_rotation
from mlxspec.device import backend, products
from mlxspec.device.attention import attend
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.models import TargetConfig

_WORTH_SHARING = 500_000  # numbers of a matrix


class HookedModel:
    """A model of mlx-lm whose parts are overridden while this object lives."""

    vocab_size: int  # width of its logits, V
    dtype: mx.Dtype  # of its logits
    row_shapes: list[tuple[int, int]]  # heads and width of all keys, then of all values

    def __init__(self, source: nn.Module) -> None:
        """Find the parts of a model and override them."""
        self.source = source
        self._current = Current()
        self.plan = LeafPlan(self._current)
        self._leaves = [self.plan.leaf(cache) for cache in make_prompt_cache(source)]
        self.parts = self._recorded()
        self._override()

    def config(self, eos_token_ids: Sequence[int]) -> TargetConfig:
        source, plan, parts = self.source, self.plan, self.parts
        args = getattr(source, "args", None)
        numbers = [heads * size for heads, size in self.row_shapes]  # of all keys, then values
        pairs = zip(numbers[: plan.num_rows], numbers[plan.num_rows :], strict=True)
        return TargetConfig(
            model_type=getattr(source, "model_type", type(source).__module__.rsplit(".", 1)[-1]),
            vocab_size=self.vocab_size,
            hidden_size=parts.hidden_size if parts.backbone is not None else self.vocab_size,
            num_hidden_layers=len(parts.layers),
            num_states=plan.num_states,
            head_dim=math.gcd(*(size for _, size in self.row_shapes)),
            row_numbers=tuple(map(sum, pairs)),
            max_position_embeddings=context_length(args),
            layer_windows=tuple(parts.windows),
            row_windows=plan.row_windows,
            eos_token_ids=tuple(eos_token_ids),
            **named_sizes(args),
            **named_numbers(args),
        )

    # ---- running ---------------------------------------------------------------------------

    def forward(self, tokens: mx.array, forward: Forward) -> tuple[mx.array, list[mx.array]]:
        """Run the model, or a part of it, over (B, L) int32 tokens.

        Returns the (B, L, D) output of the backbone, or of the model if it has none, and (B, L, D)
        states that enter the captured layers. B and L are B*L and 1 if rows are folded.
        """
        rows = tokens if forward.folded is None else tokens.reshape(-1, 1)
        try:
            with self._current.run(forward):
                result: mx.array = self.source(rows, cache=self._leaves)
                final = result if self.parts.backbone is None else self._current.final
                captured = [self._entering(layer) for layer in forward.capture]
        finally:
            for leaf in self.plan.row_leaves:
                leaf.release()
        assert final is not None
        return final, captured

    def head(self, rows: mx.array) -> mx.array:
        """Return the logits (1, n, V) of (1, n, D) outputs of the backbone."""
        self._current.replay = rows
        try:
            logits: mx.array = self.source(mx.zeros(rows.shape[:2], mx.int32))
        finally:
            self._current.replay = None
        return logits

    def _entering(self, layer: int) -> mx.array:
        if layer not in self._current.entering:
            raise UnsupportedOperationError(
                f"the states that enter layer {layer} of this model cannot be read, because its "
                "code does not call that layer: choose a drafter that reads none, such as 'pool' "
                "or a draft model, or train a table"
            )
        return self._current.entering[layer]

    # ---- hooks -----------------------------------------------------------------------------

    def _recorded(self) -> Anatomy:
        cache = Cache(self.plan.num_rows, num_states=self.plan.num_states)
        cache.states.expect_text(2)
        masks = MasksAsked()
        tokens = mx.array([[3, 2]], mx.int32)

        def run() -> None:
            with self._current.run(Forward(cache, 0, masks)):
                logits = self.source(tokens, cache=self._leaves)
                self.vocab_size, self.dtype = logits.shape[-1], logits.dtype

        layers = getattr(self.source, "layers", None)
        if not isinstance(layers, list):
            raise UnsupportedModelError("the model names no `layers`")
        found = anatomy(self.source, layers, run)
        self.row_shapes = [(plane.shape[1], plane.shape[3]) for plane in cache.row_arrays]
        held = [leaf.window for leaf in self.plan.row_leaves if leaf.window is not None]
        found.windows = list(dict.fromkeys([*masks.windows, *held]))
        return found

    def _override(self) -> None:
        current, parts = self._current, self.parts
        last = len(parts.layers) - 1
        undo = _faster_products(self.source, current) + _attention_in_calls(self.source, current)
        undo += [position_rotation(module, current) for module in parts.rotations]
        undo += [position_embedding(module, current) for module in parts.position_embeddings]
        undo += [branch(module, current) for module in parts.mixers]
        undo += [
            _watch(layer, index, current, is_last=index == last)
            for index, layer in enumerate(parts.layers)
        ]
        if parts.backbone is not None:
            undo.append(_catch(parts.backbone, current))
        self._undo = undo
        self._finalizer = weakref.finalize(self, restore, undo)
        self._finalizer.atexit = False
        backbone = [] if parts.backbone is None else [parts.backbone]
        inner = (*parts.rotations, *parts.position_embeddings, *parts.mixers, *parts.layers)
        self._overridden = places(self.source, [*inner, *backbone])

    def unhook(self) -> None:
        """Restore the model; this object cannot be used afterwards."""
        self._finalizer()

    def mark(self, **attributes: Any) -> None:
        """Add attributes to the class of the model until it is unhooked."""
        self._undo.append(mark(self.source, **attributes))

    def replaced(self) -> str:
        """Return the name of an overridden part that has been replaced since, or ""."""
        for name, holder, key, part in self._overridden:
            if holder[key] is not part:
                return name
        return ""


def _watch(layer: nn.Module, index: int, current: Current, *, is_last: bool) -> Undo:
    """Make a layer keep the states that enter it, and the last layer those that leave it."""

    def around(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        part = current.part
        if part is not None:
            x = part.x if index == part.layers.start else args[0]
            if index not in part.layers:
                return x
            args = (x, *args[1:])
        if index in current.capture:
            current.entering[index] = first_array([*args, *kwargs.values()])
        result = call(*args, **kwargs)
        if part is not None and index == part.layers[-1]:
            part.result = result
        if is_last and index + 1 in current.capture:
            current.entering[index + 1] = result[0] if isinstance(result, tuple) else result
        return result

    return override(layer, around)


def _catch(backbone: nn.Module, current: Current) -> Undo:
    """Make the backbone keep its result, or return a given one instead of running."""

    def around(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if current.replay is not None:
            return current.replay
        result = call(*args, **kwargs)
        if current.is_running:
            current.final = result
        return result

    return override(backbone, around)


def _faster_products(model: nn.Module, current: Current) -> list[Undo]:
    """Make plain dense layers use `products.product` in our forwards; none on a GPU."""
    if not products.has_own_products():
        return []
    modules = modules_of(model)
    linear = [_linear(module, current) for module in modules if type(module) is nn.Linear]
    return linear + [_head(module, current) for module in modules if type(module) is nn.Embedding]


def _linear(layer: nn.Module, current: Current) -> Undo:
    is_shared = layer.weight.size >= _WORTH_SHARING

    def __call__(self: nn.Linear, x: mx.array) -> mx.array:
        if not current.is_ours:
            return nn.Linear.__call__(self, x)
        return products.product(self, x, is_shared=is_shared)

    return mark(layer, __call__=__call__)


def _head(embedding: nn.Module, current: Current) -> Undo:
    """Change how an embedding computes logits; it embeds as before."""

    def as_linear(self: nn.Embedding, x: mx.array) -> mx.array:
        return products.product(self, x) if current.is_ours else nn.Embedding.as_linear(self, x)

    return mark(embedding, as_linear=as_linear)


def _attention_in_calls(model: nn.Module, current: Current) -> list[Undo]:
    """Make attention over plain rows use `attend` in our forwards; none on a CPU."""
    theirs: Callable[..., mx.array] = base.scaled_dot_product_attention
    name = theirs.__name__

    def ours(
        queries: mx.array, keys: Any, values: Any, cache: Any, scale: float, mask: Any, **more: Any
    ) -> mx.array:
        if not current.is_ours or more or hasattr(cache, "bits"):
            return theirs(queries, keys, values, cache, scale, mask, **more)
        return attend(queries, keys, values, scale=scale, mask=mask)

    undo: list[Undo] = []
    for module in () if backend.is_cpu() else modules_of(model):
        call = type(module).__call__
        if not isinstance(call, FunctionType) or name not in call.__code__.co_names:
            continue
        if call.__globals__.get(name) is theirs:
            names = {**call.__globals__, name: ours}
            own = FunctionType(call.__code__, names, None, call.__defaults__, call.__closure__)
            undo.append(mark(module, __call__=own))
    return undo
