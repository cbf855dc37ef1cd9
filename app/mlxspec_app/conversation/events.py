"""The events that a session adds to those of the engine."""

from dataclasses import dataclass, replace

from mlxspec.trace.difference import Proof
from mlxspec.trace.events import Alternative, Event
from mlxspec_app.conversation.messages import Message


@dataclass(frozen=True)
class ModelChoice:
    """Which models to load, and with which cache."""

    model: str = ""  # a folder, a file or a hub id; "" for the default model
    drafter: str = "auto"  # a value of `--drafter`
    max_kv_size: int | None = None  # rows of a rotating cache; None for a full cache

    def has_same_target(self, other: "ModelChoice | None") -> bool:
        """Return whether only the drafter differs: the target and its cache stay as they are."""
        return other is not None and replace(other, drafter=self.drafter) == self


class SessionEvent:
    """What a session reports beside the events of its engine."""


@dataclass(frozen=True)
class SessionOpening(SessionEvent):
    """The session started to load its models; an unknown name is ""."""

    target: str = ""
    drafter: str = ""
    choice: ModelChoice | None = None  # None where the user cannot choose


@dataclass(frozen=True)
class LoadProgress(SessionEvent):
    """The progress of a download in bytes; `total` is 0 if unknown."""

    done: int
    total: int


@dataclass(frozen=True)
class SessionReady(SessionEvent):
    """The models are loaded; a message can be sent."""


@dataclass(frozen=True)
class LoadFailed(SessionEvent):
    """Other models could not be loaded; the earlier ones return and `SessionOpening` follows."""

    choice: ModelChoice
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class SessionFailed(SessionEvent):
    """There is no model, most likely because the first one could not be loaded.

    If the session is not over, `Load` accepts another model.
    """

    message: str
    traceback: str = ""
    is_over: bool = False


@dataclass(frozen=True)
class SessionNotice(SessionEvent):
    """A notice for the user; `is_trouble` says whether it reports a problem."""

    message: str
    is_trouble: bool = True


@dataclass(frozen=True)
class OrderRefused(SessionEvent):
    """An order that the session had to wait for is impossible; nothing has changed."""

    message: str


@dataclass(frozen=True)
class ReplyDiscarded(SessionEvent):
    """The last reply is written again: its text no longer counts."""


@dataclass(frozen=True)
class ChatCleared(SessionEvent):
    """A new chat started: the conversation is empty."""


@dataclass(frozen=True)
class ChatOpened(SessionEvent):
    """An earlier chat was opened: the conversation holds its messages, oldest first."""

    messages: tuple[Message, ...]
    system: str | None = None
    chat: int | None = None  # its number in the store, if any
    leaf: int | None = None  # the number of its last message, if any


@dataclass(frozen=True)
class ChatCut(SessionEvent):
    """The conversation was cut to its first `num_turns` user turns; another turn follows."""

    num_turns: int


@dataclass(frozen=True)
class ContextFull(SessionEvent):
    """The last turn no longer fits the model's context and gets no reply."""

    context_length: int = 0  # tokens that fit; 0 if unknown
    fits_alone: bool = True  # whether the turn would fit without the earlier ones


@dataclass(frozen=True)
class ProofProgress(SessionEvent):
    """The progress of the comparison of the last reply with plain decoding, in tokens."""

    done: int
    total: int


@dataclass(frozen=True)
class ProofFinished(SessionEvent):
    """The comparison of the last reply with plain decoding ended."""

    proof: Proof


@dataclass(frozen=True)
class AlternativesFound(SessionEvent):
    """The most probable tokens for one position of a reply.

    `turn` is the index of the user turn that the reply answers, among those on the screen;
    `position` is the index of the token in the reply. If `found` is empty, `message` says why.
    """

    turn: int
    position: int
    found: tuple[Alternative, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class TableProgress(SessionEvent):
    """How far a table of the model's own text is, which is made while nobody asks."""

    share: float | None  # of the time for writing, 0 to 1; None once it is over or stopped
    num_tokens: int = 0  # of the text


@dataclass(frozen=True)
class RaceProgress(SessionEvent):
    """An event of a run of a race: 0 is the model alone, which comes first, 1 has drafts."""

    run: int
    event: Event


@dataclass(frozen=True)
class RaceFinished(SessionEvent):
    """Both runs of a race are recorded, or the user stopped it."""

    is_stopped: bool = False


AnyEvent = Event | SessionEvent
