"""A download that runs next to the chat: its progress, its end, and its stop flag."""

from collections.abc import Callable
from dataclasses import dataclass

from mlxspec.drafting.entries import ModelEntry
from mlxspec.errors import MlxspecError

Fetch = Callable[[str, Callable[[int, int], None]], None]
"""Downloads a model by its source, and reports the bytes done and in all."""


class FetchStoppedError(MlxspecError):
    """The user stopped the download, or the app ended."""


@dataclass
class Fetching:
    """The download of one model; a thread runs it and the screen reads it.

    Attributes:
        done: Downloaded bytes.
        total: Bytes in all, 0 until known.
        is_stopped: Set to request a stop; the caller need not wait.
        is_over: Whether it has ended, successfully or not.
        error: Why it failed, or "".
    """

    model: ModelEntry
    done: int = 0
    total: int = 0
    is_stopped: bool = False
    is_over: bool = False
    error: str = ""

    def run(self, fetch: Fetch, is_cancelled: Callable[[], bool]) -> None:
        """Download the model; after a stop, complete files stay and the next run resumes.

        `is_cancelled` returns whether the app no longer waits for it.
        """

        def note(done: int, total: int) -> None:
            if self.is_stopped or is_cancelled():
                raise FetchStoppedError("the download was stopped; f resumes it")
            self.done, self.total = done, total

        try:
            fetch(self.model.source, note)
        except Exception as error:  # the thread's edge: an error becomes a row on the screen
            is_ours = isinstance(error, MlxspecError)
            self.error = str(error) if is_ours else f"{type(error).__name__}: {error}"
        self.is_over = True
