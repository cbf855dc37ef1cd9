"""What the command that starts the chat tells of this machine: models and drafters.

It implements `Catalogue`: the picker itself reads no disks and does not decide which drafter fits a
target. A download runs beside the chat.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec.errors import MlxspecError

Fetch = Callable[[str, Callable[[int, int], None]], None]
"""Downloads a model by its source, and reports the bytes done and in all."""


class Catalogue(Protocol):
    """Lists and fetches the models and drafters of this machine; its methods take a while.

    The source of the default model is "" here; `max_kv_size` None means a full cache.
    """

    @property
    def memory_gb(self) -> float:
        """GB of memory that models may take."""

    def models(self) -> Sequence[ModelEntry]:
        """Return the models that can be chosen: the default first, recommended downloads last."""

    def recommended(self) -> ModelEntry | None:
        """Return the model to fetch first on this machine, which may be here already."""

    def fetch(self, source: str, on_progress: Callable[[int, int], None]) -> None:
        """Download a model, or resume an interrupted download.

        `on_progress` is called with the bytes done and in all; an exception that it raises ends the
        download.

        Raises:
            ModelNotFoundError: The model cannot be downloaded.
        """

    def drafters(self, source: str, max_kv_size: int | None = None) -> Sequence[DrafterEntry]:
        """Return the drafters for a model, the most useful first."""

    def forget_verdict(self, source: str, max_kv_size: int | None = None) -> None:
        """Forget which drafter is fastest, so that `auto` measures again."""


class FetchStoppedError(MlxspecError):
    """The user stopped the download, or the app ended."""


@dataclass
class Fetching:
    """The download of one model; a thread runs it and the screen reads it."""

    model: ModelEntry
    done: int = 0  # bytes
    total: int = 0  # bytes, 0 until known
    is_stopped: bool = False  # set to request a stop; the caller need not wait
    is_over: bool = False  # it has ended, successfully or not
    error: str = ""

    def run(self, fetch: Fetch) -> None:
        """Download the model; after a stop, what is here stays and the next run resumes."""

        def note(done: int, total: int) -> None:
            if self.is_stopped:
                raise FetchStoppedError("the download was stopped; f resumes it")
            self.done, self.total = done, total

        try:
            fetch(self.model.source, note)
        except Exception as error:  # the thread's edge: an error becomes a row on the screen
            is_ours = isinstance(error, MlxspecError)
            self.error = str(error) if is_ours else f"{type(error).__name__}: {error}"
        self.is_over = True


def gigabytes(size_gb: float) -> str:
    """Return a size in MB below one GB, else in GB."""
    return f"{size_gb * 1000:.0f} MB" if size_gb < 1 else f"{size_gb:.1f} GB"
