"""Check the values of a head's config that no shape of a tensor confirms.

The networks use these values without further checks.
"""

from typing import Any

from mlxspec.loading.heads.checkpoint import HeadCheckpoint
from mlxspec.loading.heads.eagle3 import are_layers
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields


def check_config(head: HeadCheckpoint, target: TargetConfig, fields: Fields) -> None:
    """Raise UnsupportedModelError if a value is missing, impossible or for another target."""
    width = "target_hidden_size" if head.kind == "eagle3" else "hidden_size"
    if fields.integer(width) != target.hidden_size:
        raise fields.refusal(width, f"{target.hidden_size}, the width of the target")
    fields.number("rms_norm_eps", 1e-6)
    accuracies = fields.get("accuracies")
    if accuracies is not None and not _are_shares(accuracies):
        raise fields.refusal("accuracies", "a list of shares from 0 to 1 for each head")
    if not _are_captures(fields.get("capture_alternatives"), head, target):
        raise fields.refusal("capture_alternatives", "lists of layers, as many as in 'capture'")


def _are_shares(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list) and all(_is_share(share) for share in row) for row in value
    )


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _are_captures(value: Any, head: HeadCheckpoint, target: TargetConfig) -> bool:
    if value is None:
        return True
    if head.kind != "eagle3" or not isinstance(value, list):
        return False
    length = len(head.config["capture"])
    return all(
        isinstance(layers, list)
        and len(layers) == length
        and are_layers(layers, target.num_hidden_layers)
        for layers in value
    )
