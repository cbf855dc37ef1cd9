"""The orders to a session, as frozen records.

An order travels like an event, in the other direction: a screen sends it, the state notes it, the
session queues it, and one `match` in the driver carries it out. Sessions carry orders out one after
the other, except `Stop`.
"""

from dataclasses import dataclass

from mlxspec_app.conversation.events import ChatOpened, ModelChoice


@dataclass(frozen=True)
class Say:
    """Answer a message; the events of the reply follow, `TurnStarted` first."""

    text: str


@dataclass(frozen=True)
class Regenerate:
    """Write the last reply again; `ReplyDiscarded` comes first."""


@dataclass(frozen=True)
class Edit:
    """Replace a user turn and all that followed; `ChatCut` comes first.

    `turn` is an index among the user turns on the screen.
    """

    turn: int
    text: str


@dataclass(frozen=True)
class Branch:
    """Write a reply again from a position on, with another token id there.

    `turn` and `position` are those of `FindAlternatives`. `ChatCut` and `ReplyDiscarded` come
    first; if only `AlternativesFound` comes, it says why this is impossible.
    """

    turn: int
    position: int
    token: int


@dataclass(frozen=True)
class FindAlternatives:
    """Find the most probable tokens for a position of a reply; `AlternativesFound` follows.

    `turn` is the index of the user turn that the reply answers; `position` is the index of the
    token in the reply.
    """

    turn: int
    position: int


@dataclass(frozen=True)
class Prove:
    """Decode the last reply once more without drafts; `ProofFinished` comes last."""


@dataclass(frozen=True)
class Race:
    """Answer a prompt plainly, then with drafts, outside the chat; `RaceFinished` comes last.

    The prompt "" stands for the last one of the chat.
    """

    prompt: str = ""


@dataclass(frozen=True)
class NewChat:
    """Start an empty conversation; `ChatCleared` follows."""


@dataclass(frozen=True)
class OpenChat:
    """Continue an earlier chat; `chat` itself follows as an event."""

    chat: ChatOpened


@dataclass(frozen=True)
class SetSystem:
    """Set the system prompt from the next reply on; "" is the model's own.

    `TurnStarted` with the role "system" follows.
    """

    text: str


@dataclass(frozen=True)
class ForgetOldest:
    """Allow or forbid to leave out the oldest turns when the context is full.

    A turn that does not fit then gives `TurnsForgotten` if allowed, else `ContextFull`.
    """

    is_allowed: bool


@dataclass(frozen=True)
class Load:
    """Load other models for the same conversation; `SessionOpening` comes first.

    `Stop` ends a download. Then, and after an error, `LoadFailed` follows and the earlier models
    return; `SessionFailed` if there were none.
    """

    choice: ModelChoice


@dataclass(frozen=True)
class Stop:
    """End the running reply after its round, and the waiting orders at once."""


Writing = Say | Regenerate | Edit | Branch
"""Orders that add text to the conversation."""
Awaited = Writing | FindAlternatives | Prove | Race
"""Orders that keep the session busy; its first event comes late."""
Order = Awaited | NewChat | OpenChat | SetSystem | ForgetOldest | Load | Stop
