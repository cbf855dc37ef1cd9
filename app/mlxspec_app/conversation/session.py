"""The protocol of a session, live or replayed, and the events it adds to those of the engine.

A session owns the model, or a recording of one. It accepts orders without blocking and returns its
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

    `model` is a folder, a file or a hub id, "" for the default model. `drafter` is a value of
    `--drafter`. `max_kv_size` is the number of rows of a rotating cache, None for a full cache.
    """

    model: str = ""
    drafter: str = "auto"
    max_kv_size: int | None = None

    def has_same_target(self, other: "ModelChoice | None") -> bool:
        """Return whether only the drafter differs: the target and its cache stay as they are."""
        return other is not None and replace(other, drafter=self.drafter) == self


@dataclass(frozen=True)
class SessionOpening:
    """The session started to load its models.

    A name is "" if unknown. `choice` is None where the user cannot choose.
    """

    target: str = ""
    drafter: str = ""
    choice: ModelChoice | None = None


@dataclass(frozen=True)
class LoadProgress:
    """The progress of a download in bytes; `total` is 0 if unknown."""

    done: int
    total: int


@dataclass(frozen=True)
class SessionReady:
    """The models are loaded; a message can be sent."""


@dataclass(frozen=True)
class LoadFailed:
    """Other models could not be loaded; the earlier ones return and `SessionOpening` follows."""

    choice: ModelChoice
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class SessionFailed:
    """There is no model, most likely because the first one could not be loaded.

    If the session is not over, `load` accepts another model.
    """

    message: str
    traceback: str = ""
    is_over: bool = False


@dataclass(frozen=True)
class SessionNotice:
    """A notice for the user; `is_trouble` says whether it reports a problem."""

    message: str
    is_trouble: bool = True


@dataclass(frozen=True)
class ReplyDiscarded:
    """The last reply is written again: its text no longer counts."""


@dataclass(frozen=True)
class ChatCleared:
    """A new chat started: the conversation is empty."""


@dataclass(frozen=True)
class ChatOpened:
    """An earlier chat was opened: the conversation holds its messages, oldest first.

    `chat` is its number in the store, if any, and `leaf` that of its last message, if any.
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

    `context_length` is the number of tokens that fit, 0 if unknown. `fits_alone` says whether the
    turn would fit without the earlier ones.
    """

    context_length: int = 0
    fits_alone: bool = True


@dataclass(frozen=True)
class TurnsForgotten:
    """The oldest turns no longer fit the context; `num_turns` counts all that are left out."""

    num_turns: int


@dataclass(frozen=True)
class ProofProgress:
    """The progress of the comparison of the last reply with plain decoding, in tokens."""

    done: int
    total: int


@dataclass(frozen=True)
class ProofFinished:
    """The comparison of the last reply with plain decoding ended.

    If it was impossible, `proof` is None and `message` says why.
    """

    proof: Proof | None
    message: str = ""


@dataclass(frozen=True)
class AlternativesFound:
    """The most probable tokens for one position of a reply.

    `turn` is the index of the user turn that the reply answers, among those on the screen;
    `position` is the index of the token in the reply. If `found` is empty, `message` says why.
    """

    turn: int
    position: int
    found: tuple[Alternative, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class RaceProgress:
    """A run of a race started, with this drafter; the runs are recorded one after the other."""

    drafter: str


@dataclass(frozen=True)
class RaceFinished:
    """Both runs of a race are recorded, or the race was impossible.

    If it was impossible, both are empty and `message` says why.
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
        """Start an empty conversation; `ChatCleared` follows."""

    def edit(self, turn: int, text: str) -> None:
        """Replace a user turn and all that followed; `ChatCut` comes first.

        `turn` is an index among the user turns of the conversation.
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
        """Find the most probable tokens for a position of a reply; `AlternativesFound` follows.

        `turn` is the index of the user turn that the reply answers; `position` is the index of the
        token in the reply.
        """

    def branch(self, turn: int, position: int, token: int) -> None:
        """Write a reply again from a position on, with another token id there.

        `turn` and `position` are those of `find_alternatives`. `ChatCut` and `ReplyDiscarded` come
        first; if only `AlternativesFound` comes, it says why this is impossible.
        """

    def race(self, text: str) -> None:
        """Answer a prompt plainly, then with drafts, outside the chat; `RaceFinished` comes last.

        The prompt "" stands for the last one of the chat.
        """

    def adjust(self, name: str, value: str) -> None:
        """Change a setting from the next reply on; "" returns to its default in this chat.

        Raises:
            ValueError: There is no such setting, or it cannot have this value.
        """

    def adjustable(self) -> dict[str, str]:
        """Return the settings of the next reply that `adjust` can change, by name."""

    def origins(self) -> dict[str, str]:
        """Return the origins, as text by name, of those settings that the user did not give."""

    def notify(self, message: str) -> None:
        """Send a notice as an event; safe from any thread."""

    def stop(self) -> None:
        """End the running reply after its round, and waiting replies at once."""

    def close(self) -> None:
        """Stop, free the model and wait until that is done; safe to call twice."""

    def drain(self) -> list[Event | SessionEvent]:
        """Return the events since the last call, oldest first."""
