"""Builds the drafter of a trained head: one builder per kind.

To add a kind of head, write its drafter, teach `loading/heads/` its files, and add its builder
here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.eagle.eagle1 import EagleDrafter, EagleNetwork
from mlxspec.drafters.eagle.eagle3 import Eagle3Drafter, Eagle3Network
from mlxspec.drafters.early_exit.drafter import EarlyExitDrafter, ExitHead
from mlxspec.drafters.medusa.drafter import MedusaDrafter, MedusaHeads
from mlxspec.loading.heads.checkpoint import HeadCheckpoint


class Builder(Protocol):
    """Builds the drafter of one kind of head."""

    def __call__(self, head: HeadCheckpoint, target: Decoder) -> Drafter:
        """Return the drafter."""


def _parts(
    head: HeadCheckpoint, target: Decoder
) -> tuple[Mapping[str, Any], Mapping[str, mx.array], mx.Dtype]:
    """Return the arguments of `from_checkpoint`: config and tensors, and the target's dtype."""
    return head.config, head.tensors, target.model.dtype


def _medusa(head: HeadCheckpoint, target: Decoder) -> Drafter:
    return MedusaDrafter(MedusaHeads.from_checkpoint(*_parts(head, target)), target)


def _eagle(head: HeadCheckpoint, target: Decoder) -> Drafter:
    network = EagleNetwork.from_checkpoint(*_parts(head, target))
    return EagleDrafter(network, target)


def _eagle3(head: HeadCheckpoint, target: Decoder) -> Drafter:
    network = Eagle3Network.from_checkpoint(*_parts(head, target))
    return Eagle3Drafter(network, target)


def _exit(head: HeadCheckpoint, target: Decoder) -> Drafter:
    return EarlyExitDrafter(target, ExitHead.from_checkpoint(*_parts(head, target)))


BUILDERS: dict[str, Builder] = {
    "medusa": _medusa,
    "eagle": _eagle,
    "eagle3": _eagle3,
    "exit": _exit,
}
"""Keyed by the kind that a checkpoint declares."""


def head_drafters(head: HeadCheckpoint, target: Decoder) -> list[Drafter]:
    """Return the drafter of a head, and one more for every other layer convention it may have.

    The config of a format that counts layers in several ways has `capture_alternatives`.
    """
    build = BUILDERS[head.kind]
    others = head.config.get("capture_alternatives") or ()
    ways = [replace(head, config={**head.config, "capture": capture}) for capture in others]
    return [build(way, target) for way in (head, *ways)]
