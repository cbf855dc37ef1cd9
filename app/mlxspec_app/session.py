"""What the app asks of a session, live or replayed, and what a session tells besides events.

A session owns the model, or a recording of one. It takes orders without blocking and hands over
what happened when it is drained; the app draws that and knows nothing else about it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mlxspec.events import Event
from mlxspec.proof import Proof

ProgressCallback = Callable[[int, int], None]
"""Called while a model is downloaded, with bytes done and bytes in all."""


@dataclass(frozen=True)
class SessionOpening:
    """The session began to load its models.

    Attributes:
        target: Name of the target model, or "" while it is not known.
        drafter: Name of the drafter, or "".
    """

    target: str = ""
    drafter: str = ""


@dataclass(frozen=True)
class LoadProgress:
    """How far the download of a model is.

    Attributes:
        done: Bytes that are there.
        total: Bytes in all, or 0 when that is not known.
    """

    done: int
    total: int


@dataclass(frozen=True)
class SessionReady:
    """The models are loaded; a message can be sent."""


@dataclass(frozen=True)
class SessionFailed:
    """The session cannot go on, most likely because its model could not be loaded."""

    message: str
    traceback: str = ""


@dataclass(frozen=True)
class SessionNotice:
    """Something the user should know that does not end the session."""

    message: str


@dataclass(frozen=True)
class ReplyDiscarded:
    """The last reply is being written again: what it said no longer counts."""


@dataclass(frozen=True)
class ChatCleared:
    """A new chat began: the conversation is empty."""


@dataclass(frozen=True)
class ProofProgress:
    """How far the last reply has been compared with plain decoding.

    Attributes:
        done: Tokens compared.
        total: Tokens of the reply.
    """

    done: int
    total: int


@dataclass(frozen=True)
class ProofFinished:
    """The last reply has been compared with plain decoding, or could not be.

    Attributes:
        proof: The outcome, or None.
        message: Why there is none, or "".
    """

    proof: Proof | None
    message: str = ""


SessionEvent = (
    SessionOpening
    | LoadProgress
    | SessionReady
    | SessionFailed
    | SessionNotice
    | ReplyDiscarded
    | ChatCleared
    | ProofProgress
    | ProofFinished
)


class Session(Protocol):
    """A conversation with a model that the app can drive.

    No method blocks, `close` excepted. Orders are carried out in the order they were given.
    """

    @property
    def busy(self) -> bool:
        """Whether an order is being carried out or waiting."""

    def start(self) -> None:
        """Begin to load; `SessionReady` or `SessionFailed` follows."""

    def send(self, text: str) -> None:
        """Say something; the events of the reply follow, `TurnStarted` first."""

    def regenerate(self) -> None:
        """Write the last reply again; `ReplyDiscarded` comes first."""

    def new_chat(self) -> None:
        """Forget the conversation; `ChatCleared` follows."""

    def prove(self) -> None:
        """Decode the last reply once more without drafts; `ProofFinished` comes last."""

    def adjust(self, name: str, value: str) -> None:
        """Change a setting from the next reply on.

        Raises:
            ValueError: There is no such setting, or it cannot have this value.
        """

    def stop(self) -> None:
        """End the reply being written at the end of its round, and those that wait at once."""

    def close(self) -> None:
        """Stop, free the model and wait until all of it is gone; safe to call twice."""

    def drain(self) -> list[Event | SessionEvent]:
        """Return what happened since the last call, oldest first."""
