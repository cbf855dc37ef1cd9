"""Many replies at once: one forward of the target per round for all replies of a batch."""

from mlxspec.batch.open import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_ROWS_PER_ROUND,
    BatchSettings,
    OpenBatch,
)
from mlxspec.batch.run import replies_as_they_end, replies_in_order
from mlxspec.reply.reply import BatchReply

__all__ = [
    "DEFAULT_BATCH_SIZE",
    "DEFAULT_ROWS_PER_ROUND",
    "BatchReply",
    "BatchSettings",
    "OpenBatch",
    "replies_as_they_end",
    "replies_in_order",
]
