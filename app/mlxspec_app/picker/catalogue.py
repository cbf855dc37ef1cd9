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
        """GB of memory that models may take."""

    def models(self) -> Sequence[ModelEntry]:
        """Return the models that can be chosen: the default first, recommended downloads last."""

    def fetch(self, source: str, on_progress: Callable[[int, int], None]) -> None:
        """Download a model, or resume an interrupted download.

        `on_progress` is called with the bytes done and in all; an exception that it raises ends the
        download.

        Raises:
            ModelNotFoundError: The model cannot be downloaded.
        """

    def drafters(self, source: str, max_kv_size: int | None = None) -> Sequence[DrafterEntry]:
        """Return the drafters for a model, the most useful first.

        Their speeds are those with a rotating cache of `max_kv_size` rows; None means a full cache.
        """

    def forget_verdict(self, source: str, max_kv_size: int | None = None) -> None:
        """Forget which drafter is fastest, so that `auto` measures again; see `drafters`."""
