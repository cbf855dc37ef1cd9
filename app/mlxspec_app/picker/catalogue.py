"""The interface from which the model picker gets models and drafters, as plain records.

The command that starts the chat implements `Catalogue`: the picker itself reads no disks and does
not decide which drafter fits a target.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from mlxspec.drafting.entries import DrafterEntry, ModelEntry


class Catalogue(Protocol):
    """Lists and fetches the models and drafters of this machine; its methods take a while.

    The source of the default model is "" here.
    """

    @property
    def memory_gb(self) -> float:
        """Memory that models may take."""

    def models(self) -> Sequence[ModelEntry]:
        """Return the models that can be chosen, the default model first.

        Those that are worth fetching come last.
        """

    def fetch(self, source: str, on_progress: Callable[[int, int], None]) -> None:
        """Download a model, and resume a download that was interrupted.

        Args:
            source: Its source.
            on_progress: Called with the bytes done and in all; what it raises ends the download.

        Raises:
            ModelNotFoundError: It cannot be downloaded.
        """

    def drafters(self, source: str, max_kv_size: int | None = None) -> Sequence[DrafterEntry]:
        """Return the drafters for a model, the most useful first.

        Args:
            source: The model.
            max_kv_size: Rows of a rotating cache, or None: speeds are those with this cache.
        """

    def forget_verdict(self, source: str, max_kv_size: int | None = None) -> None:
        """Forget which drafter is fastest, so that `auto` measures again; see `drafters`."""
