"""What training reads of a target, in float32, however the target is packed."""

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.search.reduced_head import head_rows
from mlxspec.models import Model


def dense(linear: Any) -> mx.array:
    """Return the float32 weight of a layer, whether it is quantised or not."""
    weight: mx.array = linear.weight
    if "scales" in linear:
        biases = linear.get("biases")
        weight = mx.dequantize(weight, linear.scales, biases, linear.group_size, linear.bits)
    return weight.astype(mx.float32)


def dense_head(model: Model, target_ids: mx.array) -> mx.array:
    """Return the (n, D) float32 rows of a target's output head for (n,) int32 tokens."""
    return dense(head_rows(model, target_ids))


def dense_rows(states: mx.array, places: NDArray[np.intp]) -> mx.array:
    """Return the (n, D) float32 states at n places of (L, D)."""
    rows: mx.array = states[mx.array(places.astype(np.int32))].astype(mx.float32)
    return rows
