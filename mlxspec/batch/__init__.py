"""Many replies at once: one forward of the target per round for all replies of a batch."""

from mlxspec.batch.open import OpenBatch
from mlxspec.batch.run import replies_as_they_end, replies_in_order
from mlxspec.batch.settings import BatchSettings
from mlxspec.reply.reply import BatchReply

__all__ = [
    "BatchReply",
    "BatchSettings",
    "OpenBatch",
    "replies_as_they_end",
    "replies_in_order",
]
