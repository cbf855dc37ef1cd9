"""A download beside the chat: how far it is, how it ended, and how it is stopped."""

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
        model: The model.
        done: Downloaded bytes.
        total: Bytes in all, 0 until that is known.
        is_stopped: Whether it is to stop; whoever sets it need not wait.
        is_over: Whether it has ended, well or not.
        error: Why it failed, or "".
    """

    model: ModelEntry
    done: int = 0
    total: int = 0
    is_stopped: bool = False
    is_over: bool = False
    error: str = ""

    def run(self, fetch: Fetch, is_cancelled: Callable[[], bool]) -> None:
        """Download the model; complete files stay when it is stopped, and the next time resumes.

        Args:
            fetch: Downloads it.
            is_cancelled: Returns whether the app no longer waits for it.
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
