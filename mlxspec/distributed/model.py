"""A model of which this rank has a part: it computes together with all ranks, or not at all.

A forward that one rank runs alone would wait forever for the others. So every forward goes through
a decoder that has ordered it on the others (`decoder.py`); any other forward raises.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.adapted.model import AdaptedModel
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.masks import Masks
from mlxspec.models import CacheKind, DraftSupport, TargetConfig, TargetModel

_ALONE = (
    "the model stands on several ranks, and this needs forwards of it that the other ranks were "
    "not told of: leave out --hosts for it"
)
_WHOLE = (
    "the layers of this model run as a whole only where it stands on several ranks, so no early "
    "exit can draft for it: choose another drafter, such as 'pool', 'medusa' or 'model'"
)

_ELSEWHERE = (
    "states between the layers of this model are on other ranks, so no drafter can read them: "
    "choose one that reads none, such as 'pool', 'medusa' or 'model'"
)


class ShardedModel:
    """The target as rank 0 sees it; methods as in `TargetModel`."""

    def __init__(self, model: TargetModel, *, has_all_layers: bool) -> None:
        """Wrap the part of this rank.

        With `has_all_layers`, it has a part of every layer, so drafters can read the states between
        them.
        """
        self._model = model
        self._has_all_layers = has_all_layers
        self._is_told = False

    @contextmanager
    def told(self) -> Iterator[None]:
        """Allow forwards: the other ranks run the same ones."""
        self._is_told = True
        try:
            yield
        finally:
            self._is_told = False

    def check_capture(self) -> None:
        """Raise UnsupportedOperationError if states between layers are on another rank."""
        self._check(self._has_all_layers, _ELSEWHERE)

    def check_parts(self) -> None:
        """Raise UnsupportedOperationError if the layers only run as a whole."""
        self._check(not isinstance(self._model, AdaptedModel), _WHOLE)

    @property
    def config(self) -> TargetConfig:
        return self._model.config

    @property
    def draft_support(self) -> DraftSupport:
        return self._model.draft_support

    @property
    def supports_batches(self) -> bool:
        """Whether one forward can run several sequences: no, because each has its own orders."""
        return False

    @property
    def draft_limits(self) -> str:
        return self._model.draft_limits

    @property
    def refused_caches(self) -> Mapping[CacheKind, str]:
        return self._model.refused_caches

    @property
    def layers(self) -> Sequence[nn.Module]:
        return self._model.layers

    @property
    def dtype(self) -> mx.Dtype:
        return self._model.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the parameters of this rank."""
        return self._model.nbytes

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings of tokens; every rank has the whole embedding."""
        return self._model.embed(tokens)

    def hidden_states(
        self,
        tokens: mx.array,
        cache: Any,
        positions: int | mx.array,
        masks: Masks,
        *,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        """Run all layers; raise UnsupportedOperationError outside `told`."""
        self._check(self._is_told, _ALONE)
        return self._model.hidden_states(tokens, cache, positions, masks, capture=capture)

    def run_layers(
        self,
        x: mx.array,
        cache: Any,
        positions: int | mx.array,
        masks: Masks,
        layers: range,
        *,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        """Run consecutive layers; raise like `hidden_states` and `norm`."""
        self.check_parts()
        self._check(self._is_told, _ALONE)
        return self._model.run_layers(x, cache, positions, masks, layers, capture=capture)

    def norm(self, x: mx.array) -> mx.array:
        """Return the final norm; raise UnsupportedOperationError if layers only run as a whole."""
        self.check_parts()
        return self._model.norm(x)

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits of final hidden states; every rank has the whole head."""
        return self._model.logits(hidden)

    def head_rows(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        return self._model.head_rows(token_ids)

    def _check(self, is_allowed: bool, why: str) -> None:
        if not is_allowed:
            raise UnsupportedOperationError(why)
