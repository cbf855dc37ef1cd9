"""What the app asks of a session, live or replayed, and what a session tells besides events.

A session owns the model, or a recording of one. It takes orders without blocking and hands over
what happened when it is drained; the app draws that and knows nothing else about it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mlxspec.trace.events import Event
from mlxspec.trace.proof import Proof
from mlxspec_app.conversation.messages import Message

ProgressCallback = Callable[[int, int], None]
"""Called while a model is downloaded, with bytes done and bytes in all."""


@dataclass(frozen=True)
class ModelChoice:
    """Which models to load, and how the target keeps what it read.

    Attributes:
        model: Folder, file or hub id of the target; "" for the default model.
        drafter: What `--drafter` would name.
        max_kv_size: Rows of a rotating cache; None for a cache that grows.
    """

    model: str = ""
    drafter: str = "auto"
    max_kv_size: int | None = None


@dataclass(frozen=True)
class SessionOpening:
    """The session began to load its models.

    Attributes:
        target: Name of the target model, or "" while it is not known.
        drafter: Name of the drafter, or "".
        choice: What was asked for; None where nothing can be chosen.
    """

    target: str = ""
    drafter: str = ""
    choice: ModelChoice | None = None


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
class LoadFailed:
    """Other models could not be loaded; those before return, `SessionOpening` follows.

    Attributes:
        choice: What was asked for.
        message: Why it cannot be had.
        traceback: Where that was found.
    """

    choice: ModelChoice
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class SessionFailed:
    """There is no model, most likely because the first one could not be loaded.

    Attributes:
        message: Why.
        traceback: Where that was found.
        is_over: Whether the session is over; else `load` takes another model.
    """

    message: str
    traceback: str = ""
    is_over: bool = False


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
class ChatOpened:
    """An earlier chat goes on: the conversation is what was said in it.

    Attributes:
        messages: What was said, oldest first.
        system: Its system prompt, or None.
        chat: Its number in the store, or None.
        leaf: Number of the message after which it goes on, or None at its beginning.
    """

    messages: tuple[Message, ...]
    system: str | None = None
    chat: int | None = None
    leaf: int | None = None


@dataclass(frozen=True)
class ChatCut:
    """The conversation was cut to its first user turns, to go on differently from there."""

    num_turns: int


@dataclass(frozen=True)
class ContextFull:
    """The last turn no longer fits the model's context, so it was not answered.

    Attributes:
        context_length: Tokens that fit, or 0 where that is not known.
    """

    context_length: int = 0


@dataclass(frozen=True)
class TurnsForgotten:
    """The oldest turns no longer fit the context and are left out of it.

    Attributes:
        num_turns: How many they are in all.
    """

    num_turns: int


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
    | LoadFailed
    | SessionFailed
    | SessionNotice
    | ReplyDiscarded
    | ChatCleared
    | ChatOpened
    | ChatCut
    | ContextFull
    | TurnsForgotten
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

    def edit(self, turn: int, text: str) -> None:
        """Say something else in place of a user turn and all that followed; `ChatCut` comes first.

        Args:
            turn: Place of the turn among all user turns of the conversation, from 0.
            text: What is said instead.
        """

    def open_chat(self, chat: ChatOpened) -> None:
        """Go on with an earlier chat; the same record follows as an event."""

    def set_system(self, text: str) -> None:
        """Have another system prompt from the next reply on, "" for the model's own.

        `TurnStarted` with the role "system" follows.
        """

    def forget_oldest(self, allowed: bool) -> None:
        """Say whether the oldest turns may be left out when the context is full.

        Where they may not, `ContextFull` follows a turn that does not fit; else `TurnsForgotten`.
        """

    def load(self, choice: ModelChoice) -> None:
        """Load other models and go on with the conversation; `SessionOpening` comes first.

        `stop` ends a download; then, and where they cannot be loaded, `LoadFailed` follows and
        the models before return; `SessionFailed` where there were none.
        """

    def prove(self) -> None:
        """Decode the last reply once more without drafts; `ProofFinished` comes last."""

    def adjust(self, name: str, value: str) -> None:
        """Change a setting from the next reply on.

        Raises:
            ValueError: There is no such setting, or it cannot have this value.
        """

    def adjustable(self) -> dict[str, str]:
        """Return what the next reply will have of the settings that `adjust` can change."""

    def tell(self, message: str) -> None:
        """Show a notice; may be called from any thread."""

    def stop(self) -> None:
        """End the reply being written at the end of its round, and those that wait at once."""

    def close(self) -> None:
        """Stop, free the model and wait until all of it is gone; safe to call twice."""

    def drain(self) -> list[Event | SessionEvent]:
        """Return what happened since the last call, oldest first."""
