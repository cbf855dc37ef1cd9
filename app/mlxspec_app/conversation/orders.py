"""The orders to a session, as frozen records, and the session that can carry out none of them.

An order travels like an event, in the other direction: a screen sends it, the state notes it, the
session queues it, and one `match` in the driver carries it out. Sessions carry orders out one after
the other, except `Stop`.
"""

from dataclasses import dataclass

from mlxspec_app.conversation.events import (
    AlternativesFound,
    AnyEvent,
    ChatOpened,
    ModelChoice,
    OrderRefused,
    SessionNotice,
)
from mlxspec_app.conversation.state import ChatState


class Order:
    """What a session is told to do."""


class Awaited(Order):
    """An order that keeps the session busy; its first event comes late."""


class Writing(Awaited):
    """An order that adds text to the conversation."""


@dataclass(frozen=True)
class Say(Writing):
    """Answer a message; the events of the reply follow, `TurnStarted` first."""

    text: str


@dataclass(frozen=True)
class Regenerate(Writing):
    """Write the last reply again; `ReplyDiscarded` comes first."""


@dataclass(frozen=True)
class Resume(Writing):
    """Go on with the last reply; `ReplyDiscarded` comes first, or `OrderRefused` alone."""


@dataclass(frozen=True)
class Edit(Writing):
    """Replace a user turn and all that followed; `ChatCut` comes first."""

    turn: int  # index among the user turns on the screen
    text: str


@dataclass(frozen=True)
class Branch(Writing):
    """Write a reply again from a position on, with another token id there.

    `turn` and `position` are those of `FindAlternatives`. `ChatCut` and `ReplyDiscarded` come
    first; if only `AlternativesFound` comes, it says why this is impossible.
    """

    turn: int
    position: int
    token: int


@dataclass(frozen=True)
class FindAlternatives(Awaited):
    """Find the most probable tokens for a position of a reply; `AlternativesFound` follows."""

    turn: int  # index of the user turn that the reply answers
    position: int  # index of the token in the reply


@dataclass(frozen=True)
class Prove(Awaited):
    """Decode the last reply once more without drafts; `ProofFinished` or `OrderRefused` is last."""


@dataclass(frozen=True)
class Race(Awaited):
    """Answer a prompt plainly, then with drafts, outside the chat; `RaceFinished` comes last."""

    prompt: str = ""  # "" for the last one of the chat
    max_tokens: int = 150  # of each run; a whole reply twice is a long wait


@dataclass(frozen=True)
class NewChat(Order):
    """Start an empty conversation; `ChatCleared` follows."""


@dataclass(frozen=True)
class OpenChat(Order):
    """Continue an earlier chat; `chat` itself follows as an event."""

    chat: ChatOpened


@dataclass(frozen=True)
class SetSystem(Order):
    """Set the system prompt from the next reply on; `TurnStarted` of "system" follows."""

    text: str  # "" for the model's own


@dataclass(frozen=True)
class ForgetOldest(Order):
    """Allow or forbid to leave out the oldest turns when the context is full.

    A turn that does not fit then gives a notice if allowed, else `ContextFull`.
    """

    is_allowed: bool


@dataclass(frozen=True)
class Load(Order):
    """Load other models for the same conversation; `SessionOpening` comes first.

    `Stop` ends a download. Then, and after an error, `LoadFailed` follows and the earlier models
    return; `SessionFailed` if there were none.
    """

    choice: ModelChoice


@dataclass(frozen=True)
class MakeTable(Order):
    """Begin to make a table of the model's own text, or stop that; `TableProgress` follows.

    The session goes on with it while no other order waits, and uses the table if it drafts better.
    """


@dataclass(frozen=True)
class Stop(Order):
    """End the running reply after its round, and the waiting orders at once."""


class ReadOnly:
    """A session without a model: it answers every order with the reason why it is impossible."""

    settings = None

    def __init__(self, what: str) -> None:
        """Describe the session for every answer, such as "this is a recording"."""
        self.news: list[AnyEvent | ChatState] = []
        self._what = what

    def send(self, order: Order) -> None:
        what, here = self._what, f"{self._what}: no model is here to"
        match order:
            case Load():
                self.notify(f"{what}: no other model can answer in it")
            case Prove():
                self.news.append(OrderRefused(f"{here} verify it"))
            case FindAlternatives(turn, position):
                why = f"{here} ask; it holds only what was drafted"
                self.news.append(AlternativesFound(turn, position, message=why))
            case Branch(turn, position):
                why = f"{here} continue from there"
                self.news.append(AlternativesFound(turn, position, message=why))
            case Race():
                self.news.append(OrderRefused(f"{here} race"))
            case ForgetOldest():
                pass  # no context fills here
            case _:
                self.notify(what)

    def notify(self, message: str) -> None:
        self.news.append(SessionNotice(message))
