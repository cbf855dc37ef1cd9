"""The events that a session adds to those of the engine."""

from dataclasses import dataclass, replace

from mlxspec.trace.alternatives import Alternative
from mlxspec.trace.difference import Proof
from mlxspec.trace.events import Event
from mlxspec_app.conversation.messages import Message


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

    If the session is not over, `Load` accepts another model.
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

AnyEvent = Event | SessionEvent
"""What a session sends: events of the engine, and its own."""
