"""The protocol of a session, live or replayed, and the events it adds to those of the engine.

A session owns the model, or a recording of one. It accepts orders without blocking, and returns its
events when it is drained. The app draws these events and has no other view of the session.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from mlxspec.trace.alternatives import Alternative
from mlxspec.trace.events import Event
from mlxspec.trace.proof import Proof
from mlxspec_app.conversation.messages import Message

ProgressCallback = Callable[[int, int], None]
"""Called during a download with the bytes done and the bytes in all."""


@dataclass(frozen=True)
class ModelChoice:
    """Which models to load, and with which cache.

    Attributes:
        model: Folder, file or hub id of the target; "" for the default model.
        drafter: A drafter as in `--drafter`.
        max_kv_size: Rows of a rotating cache; None for a full cache.
    """

    model: str = ""
    drafter: str = "auto"
    max_kv_size: int | None = None

    def has_same_target(self, other: "ModelChoice | None") -> bool:
        """Return whether only the drafter differs: the target and its cache stay as they are."""
        return other is not None and replace(other, drafter=self.drafter) == self


@dataclass(frozen=True)
class SessionOpening:
    """The session began to load its models.

    Attributes:
        target: Name of the target, or "" if unknown.
        drafter: Name of the drafter, or "".
        choice: The models to load; None where the user cannot choose.
    """

    target: str = ""
    drafter: str = ""
    choice: ModelChoice | None = None


@dataclass(frozen=True)
class LoadProgress:
    """The progress of a download.

    Attributes:
        done: Downloaded bytes.
        total: Bytes in all, or 0 if unknown.
    """

    done: int
    total: int


@dataclass(frozen=True)
class SessionReady:
    """The models are loaded; a message can be sent."""


@dataclass(frozen=True)
class LoadFailed:
    """Other models could not be loaded; the earlier ones return and `SessionOpening` follows.

    Attributes:
        choice: The models that failed.
        message: The error in a sentence.
        traceback: The traceback of the error.
    """

    choice: ModelChoice
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class SessionFailed:
    """There is no model, most likely because the first one could not be loaded.

    Attributes:
        message: The error in a sentence.
        traceback: The traceback of the error.
        is_over: Whether the session ended; else `load` accepts another model.
    """

    message: str
    traceback: str = ""
    is_over: bool = False


@dataclass(frozen=True)
class SessionNotice:
    """Something the user should know that does not end the session.

    Attributes:
        message: What it is.
        is_trouble: Whether something is wrong.
    """

    message: str
    is_trouble: bool = True


@dataclass(frozen=True)
class ReplyDiscarded:
    """The last reply is written again: its text no longer counts."""


@dataclass(frozen=True)
class ChatCleared:
    """A new chat began: the conversation is empty."""


@dataclass(frozen=True)
class ChatOpened:
    """An earlier chat was opened: the conversation holds its messages.

    Attributes:
        messages: The messages, oldest first.
        system: Its system prompt, or None.
        chat: Its number in the store, or None.
        leaf: Number of its last message in the store, or None if it is empty.
    """

    messages: tuple[Message, ...]
    system: str | None = None
    chat: int | None = None
    leaf: int | None = None


@dataclass(frozen=True)
class ChatCut:
    """The conversation was cut to its first `num_turns` user turns; another turn follows."""

    num_turns: int


@dataclass(frozen=True)
class ContextFull:
    """The last turn no longer fits the model's context and gets no reply.

    Attributes:
        context_length: Tokens that fit, or 0 if unknown.
        fits_alone: Whether the turn would fit without the earlier ones.
    """

    context_length: int = 0
    fits_alone: bool = True


@dataclass(frozen=True)
class TurnsForgotten:
    """The oldest turns no longer fit the context and are left out of it.

    Attributes:
        num_turns: The number of all turns that are left out.
    """

    num_turns: int


@dataclass(frozen=True)
class ProofProgress:
    """The progress of the comparison of the last reply with plain decoding.

    Attributes:
        done: Tokens compared.
        total: Tokens of the reply.
    """

    done: int
    total: int


@dataclass(frozen=True)
class ProofFinished:
    """The comparison of the last reply with plain decoding ended.

    Attributes:
        proof: The result, or None if the comparison was impossible.
        message: Why it was impossible, or "".
    """

    proof: Proof | None
    message: str = ""


@dataclass(frozen=True)
class AlternativesFound:
    """What else could have stood in a place of a reply.

    Attributes:
        turn: Index of the user turn that the reply answers, among those on the screen.
        position: Index of the token among the tokens of the reply.
        found: The most probable tokens; empty where they cannot be known.
        message: Why they cannot be known, or "".
    """

    turn: int
    position: int
    found: tuple[Alternative, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class RaceProgress:
    """A run of a race began; the runs are recorded one after the other.

    Attributes:
        drafter: Name of the drafter of this run.
    """

    drafter: str


@dataclass(frozen=True)
class RaceFinished:
    """Both runs of a race are recorded, or the race was impossible.

    Attributes:
        plain: Events of the run without drafts; empty if there is no race.
        drafted: Events of the run with drafts.
        message: Why there is no race, or "".
    """

    plain: tuple[Event, ...] = ()
    drafted: tuple[Event, ...] = ()
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
    | AlternativesFound
    | RaceProgress
    | RaceFinished
)


class Session(Protocol):
    """A conversation with a model that the app can drive.

    No method blocks, except `close`. Orders are carried out in sequence.
    """

    @property
    def busy(self) -> bool:
        """Whether an order is running or waiting."""

    def start(self) -> None:
        """Start to load; `SessionReady` or `SessionFailed` follows."""

    def send(self, text: str) -> None:
        """Send a message; the events of the reply follow, `TurnStarted` first."""

    def regenerate(self) -> None:
        """Write the last reply again; `ReplyDiscarded` comes first."""

    def new_chat(self) -> None:
        """Begin an empty conversation; `ChatCleared` follows."""

    def edit(self, turn: int, text: str) -> None:
        """Replace a user turn and all that followed; `ChatCut` comes first.

        Args:
            turn: Index of the turn among the user turns of the conversation.
            text: The new message.
        """

    def open_chat(self, chat: ChatOpened) -> None:
        """Continue an earlier chat; `chat` itself follows as an event."""

    def set_system(self, text: str) -> None:
        """Set the system prompt from the next reply on; "" is the model's own.

        `TurnStarted` with the role "system" follows.
        """

    def forget_oldest(self, allowed: bool) -> None:
        """Allow or forbid to leave out the oldest turns when the context is full.

        A turn that does not fit then gives `TurnsForgotten` if allowed, else `ContextFull`.
        """

    def load(self, choice: ModelChoice) -> None:
        """Load other models for the same conversation; `SessionOpening` comes first.

        `stop` ends a download. Then, and after an error, `LoadFailed` follows and the earlier
        models return; `SessionFailed` if there were none.
        """

    def prove(self) -> None:
        """Decode the last reply once more without drafts; `ProofFinished` comes last."""

    def find_alternatives(self, turn: int, position: int) -> None:
        """Find what else could have stood in a place of a reply; `AlternativesFound` follows.

        Args:
            turn: Index of the user turn that the reply answers.
            position: Index of the token among the tokens of the reply.
        """

    def branch(self, turn: int, position: int, token: int) -> None:
        """Write a reply again from a place on, with another token there.

        `ChatCut` and `ReplyDiscarded` come first; `AlternativesFound` alone says why it is not
        possible.

        Args:
            turn: Index of the user turn that the reply answers.
            position: Index of the place among the tokens of the reply.
            token: Token id for that place.
        """

    def race(self, text: str) -> None:
        """Answer a prompt plainly and then with drafts, beside the chat; `RaceFinished` comes last.

        Args:
            text: The prompt; "" for the last one of the chat.
        """

    def adjust(self, name: str, value: str) -> None:
        """Change a setting from the next reply on; "" returns to its default in this chat.

        Raises:
            ValueError: There is no such setting, or it cannot have this value.
        """

    def adjustable(self) -> dict[str, str]:
        """Return the settings of the next reply that `adjust` can change, by name."""

    def origins(self) -> dict[str, str]:
        """Return where those of them come from that the user did not give, in words, by name."""

    def notify(self, message: str) -> None:
        """Send a notice as an event; safe from any thread."""

    def stop(self) -> None:
        """End the running reply after its round, and waiting replies at once."""

    def close(self) -> None:
        """Stop, free the model and wait until that is done; safe to call twice."""

    def drain(self) -> list[Event | SessionEvent]:
        """Return the events since the last call, oldest first."""
