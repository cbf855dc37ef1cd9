"""How a model is shared: by its layers' widths (tensor parallel), or by layers (pipeline).

Tensor parallel is tried first, because all ranks then work at the same time. Our own models share
groups of heads (`models/sharding.py`); those of mlx-lm use their own code.
"""

import inspect
from os import PathLike
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.distributed.exchange import gathered, told
from mlxspec.errors import Progress, Say, UnsupportedModelError
from mlxspec.loading import LoadedModel, Room, Sharing, load_model
from mlxspec.models import Model
from mlxspec.models.sharding import shard
from mlxspec.params import Options

PIPELINE = "pipeline"
_WIDTHS = (
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
)


def sharing(group: mx.distributed.Group) -> Sharing:
    """Return how each rank of a group shares a model."""
    return Sharing(
        group.size(), lambda module: _cut(module, group), lambda value: told(value, group)
    )


def _cut(module: nn.Module, group: mx.distributed.Group) -> str:
    size = group.size()
    if isinstance(module, Model):
        shard(module, group)
        return f"tensor parallel on {size} ranks"
    why = _why_no_tensors(module, size)
    if not why:
        _shard(module, group)
        return f"tensor parallel on {size} ranks"
    backbone: Any = getattr(module, "model", None)
    if not hasattr(backbone, "pipeline"):
        raise UnsupportedModelError(
            f"a model of the type {getattr(module, 'model_type', '?')} cannot be shared by {size} "
            f"ranks: {why}, and mlx-lm has no pipeline for it; choose another number of ranks, or "
            "another model"
        )
    if len(backbone.layers) < size:
        raise UnsupportedModelError(
            f"{len(backbone.layers)} layers cannot be shared by {size} ranks: start fewer"
        )
    backbone.pipeline(group)
    return f"{PIPELINE} of {size} ranks"


def _shard(module: nn.Module, group: mx.distributed.Group) -> None:
    try:
        module.shard(group)
    except ValueError as error:  # about a width that only this type of model has
        raise UnsupportedModelError(
            f"a model of the type {getattr(module, 'model_type', '?')} cannot be shared by "
            f"{group.size()} ranks: {str(error).rstrip('.')}; choose another number of ranks"
        ) from error


def _why_no_tensors(module: nn.Module, size: int) -> str:
    """Return why mlx-lm's own code cannot cut the layers of a model, or ""."""
    if not hasattr(module, "shard"):
        return "mlx-lm cannot cut its layers"
    if "lm_head" in inspect.getsource(module.shard):
        return "mlx-lm would cut its head, too"  # the drafters of rank 0 use the head alone
    args = getattr(module, "args", None)
    for name in _WIDTHS:
        width = getattr(args, name, None)
        if isinstance(width, int) and width % size:  # mlx-lm would cut through a head, or fail
            return f"they do not divide its {name} of {width}"
    return ""


def load_shared(
    source: str | PathLike[str] | None,
    options: Options,
    group: mx.distributed.Group,
    on_progress: Progress | None = None,
    say: Say = lambda line: None,
) -> tuple[LoadedModel, list[int]]:
    """Load the part of this rank, as all ranks do now; also return the bytes of each rank's."""
    loaded = load_model(
        source,
        dtype=options.dtype,
        port=options.port,
        adapter=options.adapter,
        room=Room(options.max_kv_size, options.kv_bits),
        sharing=sharing(group),
        on_progress=on_progress,
        say=say,
    )
    return loaded, gathered(loaded.model.nbytes, group)
