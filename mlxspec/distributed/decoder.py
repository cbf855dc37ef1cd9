"""The target as rank 0 sees it: a decoder that orders the other ranks to do what it does.

So all caches hold the same rows. Only this rank sees logits, draws numbers and decides; engine,
drafters and budget need no changes. A forward that one rank runs alone would wait forever for the
others, so the model refuses every forward that its decoder has not ordered.
"""

import weakref
from collections.abc import Sequence
from itertools import count
from typing import Any, cast

import mlx.core as mx

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.exact import ExactForm
from mlxspec.decoder.hidden import HiddenStateReader
from mlxspec.device.backend import values
from mlxspec.device.turns import device_turn
from mlxspec.distributed.orders import Orders
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.models import TargetModel

_ALONE = "a forward of the target outside its decoder is not supported with --hosts"
_WHOLE = (
    "an early exit of this model is not supported with --hosts, because mlx-lm's code runs its "
    "layers as a whole only: choose another drafter, such as 'pool', 'medusa' or 'model'"
)
_ELSEWHERE = (
    "a drafter that reads states between the layers is not supported with --hosts for this model, "
    "because some of its layers are on other ranks: choose one that reads none, such as 'pool', "
    "'medusa' or 'model'"
)
_numbers = count()


class ShardedModel:
    """The target as rank 0 sees it: a `TargetModel` that refuses what it cannot do alone.

    Every rank has the whole embedding and head, so only the layers need the others.
    """

    supports_batches = False  # each sequence has its own orders

    def __init__(self, model: TargetModel, orders: Orders, *, has_all_layers: bool) -> None:
        """Wrap the part of this rank; `has_all_layers` says that it has a part of every layer."""
        self._model = model
        self._has_all_layers = has_all_layers
        self.orders = orders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def check_capture(self) -> None:
        """Raise UnsupportedOperationError if states between layers are on another rank."""
        if not self._has_all_layers:
            raise UnsupportedOperationError(_ELSEWHERE)

    def hidden_states(self, *inputs: Any, **capture: Any) -> tuple[mx.array, list[mx.array]]:
        self._check_together()
        return self._model.hidden_states(*inputs, **capture)

    def run_layers(self, *inputs: Any, **capture: Any) -> tuple[mx.array, list[mx.array]]:
        self._check_together()
        return self._model.run_layers(*inputs, **capture)

    def norm(self, x: mx.array) -> mx.array:
        """Return the final norm; early exits call it first."""
        if isinstance(self._model, AdaptedModel):
            raise UnsupportedOperationError(_WHOLE)
        return self._model.norm(x)

    def _check_together(self) -> None:
        if not self.orders.is_together:
            raise UnsupportedOperationError(_ALONE)


def call(decoder: Decoder, method: str, *numbers: Any) -> mx.array:
    """Call a method of `Decoder` on any rank, with plain numbers; its result is computed."""
    arguments = list(numbers)
    if method in ("forward_tree", "tree_logits"):
        tokens, parents = (mx.array(one, mx.int32) for one in numbers)
        arguments = [DraftTree(tokens, parents)]
    elif method == "extend_chain":
        arguments = [mx.array(numbers[0], mx.int32)]
    elif method == "be_exact" and numbers[0] is not None:
        rows, pads_keys = numbers[0]
        arguments = [ExactForm(dict(rows), pads_keys)]
    result: mx.array = getattr(Decoder, method)(decoder, *arguments)
    mx.eval(result)  # every rank computes it now: one that left it lazy would let the others wait
    return result


class ShardedDecoder(Decoder):
    """A decoder whose model is on several ranks; methods as in `Decoder`.

    What needs a forward is ordered first, and is computed when the method returns. What needs none
    is ordered after this rank has done it, so that a refused call orders nothing.
    """

    def __init__(self, model: TargetModel, cache: Cache) -> None:
        """Open an empty cache on every rank; `model` is a `ShardedModel`."""
        super().__init__(model, cache)
        self._sharded = cast(ShardedModel, model)
        self._orders = self._sharded.orders
        self._number = next(_numbers)
        self._orders.later("open", self._number)
        weakref.finalize(self, self._orders.later, "close", self._number).atexit = False

    @property
    def can_adopt(self) -> bool:
        """Whether `adopt` is possible: no, this rank has some of the rows only."""
        return False

    def adopt(
        self,
        tokens: Sequence[int],
        cache: Cache,
        readers: Sequence[HiddenStateReader] = (),
        *,
        num_read: int = 0,
    ) -> None:
        """Raise UnsupportedOperationError: the other ranks do not have these rows."""
        raise UnsupportedOperationError(
            "taking over the rows of a text is not supported with --hosts: observe its tokens"
        )

    def attach(self, readers: Sequence[HiddenStateReader]) -> None:
        """Replace the readers; none may need states of another rank (UnsupportedOperationError)."""
        if any(reader.capture for reader in readers):
            self._sharded.check_capture()
        super().attach(readers)

    def reset(self) -> None:
        super().reset()
        self._later("reset")

    def be_exact(self, form: ExactForm | None) -> None:
        if form != self.form:
            super().be_exact(form)
            numbers = None if form is None else [list(form.rows.items()), form.pads_keys]
            self._later("be_exact", numbers)

    def commit(self, path: Sequence[int]) -> None:
        with device_turn():
            super().commit(path)
        self._later("commit", list(path))

    def commit_chain(self, tokens: Sequence[int]) -> None:
        with device_turn():
            super().commit_chain(tokens)
        self._later("commit_chain", list(tokens))

    def observe(self, tokens: Sequence[int]) -> None:
        self._check_tokens(tokens)
        self._together("observe", list(tokens))

    def rollback_to(self, length: int) -> None:
        if not 0 <= length <= len(self):
            super().rollback_to(length)  # which raises
        self._together("rollback_to", length)

    def forward_tree(self, tree: DraftTree) -> mx.array:
        return self._together("forward_tree", *tree.lists())

    def tree_logits(self, tree: DraftTree) -> mx.array:
        return self._together("tree_logits", *tree.lists())

    def extend_lower(self, token: int, layer: int) -> mx.array:
        return self._together("extend_lower", token, layer)

    def extend_chain(self, tokens: mx.array) -> mx.array:
        return self._together("extend_chain", values(tokens))

    def last_hidden_state(self) -> mx.array:
        if self._last_hidden is not None or not self._history:
            return super().last_hidden_state()
        return self._together("last_hidden_state")

    def _later(self, method: str, *numbers: Any) -> None:
        self._orders.later("call", self._number, method, *numbers)

    def _together(self, method: str, *numbers: Any) -> mx.array:
        """Call a method on all ranks; return its result on this one, if it has one."""
        with device_turn():
            if self._orders.is_together:  # a step of an order that the others have
                return call(self, method, *numbers)
            with self._orders.together("call", self._number, method, *numbers):
                return call(self, method, *numbers)
