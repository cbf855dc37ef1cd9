"""A model of which this rank has a part: it computes together with all ranks, or not at all.

A forward that one rank runs alone would wait forever for the others. So every forward goes through
a decoder that has ordered it on the others (`decoder.py`); any other forward raises.
"""

from typing import Any

import mlx.core as mx

from mlxspec.adapted.model import AdaptedModel
from mlxspec.distributed.orders import Orders
from mlxspec.errors import UnsupportedOperationError
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


class ShardedModel:
    """The target as rank 0 sees it: a `TargetModel` that refuses what it cannot do alone.

    Every rank has the whole embedding and head, so only the layers need the others.

    Attributes:
        orders: What the other ranks are told.
        supports_batches: Whether one forward can run several sequences: no, because each has its
            own orders.
    """

    supports_batches = False

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
        """Run all layers, within `Orders.together`."""
        self._check_together()
        return self._model.hidden_states(*inputs, **capture)

    def run_layers(self, *inputs: Any, **capture: Any) -> tuple[mx.array, list[mx.array]]:
        """Run consecutive layers, within `Orders.together`."""
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
