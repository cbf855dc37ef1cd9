"""Many replies at once: one forward of the target per round for all sequences of a batch."""

from mlxspec.batch.jobs import jobs_of
from mlxspec.batch.open import Alone, OpenBatch
from mlxspec.batch.replies import BatchReply
from mlxspec.batch.run import BatchRun
from mlxspec.batch.settings import BatchSettings

__all__ = ["Alone", "BatchReply", "BatchRun", "BatchSettings", "OpenBatch", "jobs_of"]
