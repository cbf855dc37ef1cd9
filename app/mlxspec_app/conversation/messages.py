"""The messages of a conversation: text in spans, each of which knows its origin."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from mlxspec.trace.events import (
    CostMeasured,
    EmittedToken,
    FinishReason,
    GenerationStarted,
    PrefillProgress,
    TokenKind,
)
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.pace import Pace
from mlxspec_app.conversation.rounds import Round

_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Span:
    """Text that one emitted token released.

    Attributes:
        text: The exact characters.
        kind: Who wrote the token; None outside of replies.
        round: Number of the target forward.
        target_prob: p, where it is known.
        draft_prob: q, where it is known.
        source: Name of the drafter that proposed it; "" for a token that was not drafted.
    """

    text: str
    kind: TokenKind | None = None
    round: int = 0
    target_prob: float | None = None
    draft_prob: float | None = None
    source: str = ""

    @classmethod
    def of(cls, token: EmittedToken, r: int, source: str) -> "Span":
        """Return the text of a token that round `r` emitted."""
        return cls(token.text, token.kind, r, token.target_prob, token.draft_prob, source)


@dataclass(eq=False)
class Message:
    """Something said. Spans are only ever added at the end.

    Attributes:
        role: Who said it: "user", "system" or "assistant".
        spans: Its text in pieces.
        number: Distinguishes it from every other message of the process. Earlier states of a
            message have its number and begin with the same spans.
    """

    role: str
    spans: list[Span] = field(default_factory=list)
    number: int = field(default_factory=lambda: next(_NUMBERS))

    @property
    def text(self) -> str:
        """The exact text, nothing replaced."""
        return "".join(span.text for span in self.spans)


@dataclass(eq=False)
class Reply(Message):
    """What the model said, and how it came about.

    Attributes:
        started: Models and settings, once they are known.
        prefill: The last word on how much of the prompt was read.
        stats: Its figures so far.
        rounds: Every finished target forward.
        pace: Their running totals.
        reason: Why it ended; None while it is being written and after a failure.
        drafter_fault: Why it went on without drafts, or "".
        error: What broke it off, or "".
        traceback: Where that happened.
        peak_memory: Most memory in use, in GB, where the engine states it.
        proof: What came of comparing it with plain decoding, in words; "" before that.
        is_proven: Whether it is the text of plain decoding; None while that is not known.
        cost: What forwards cost, measured right after it or else last before it; None before that.
    """

    role: str = "assistant"
    started: GenerationStarted | None = None
    prefill: PrefillProgress | None = None
    stats: GenerationStats = field(default_factory=GenerationStats)
    rounds: list[Round] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    reason: FinishReason | None = None
    drafter_fault: str = ""
    error: str = ""
    traceback: str = ""
    peak_memory: float | None = None
    proof: str = ""
    is_proven: bool | None = None
    cost: CostMeasured | None = None

    @property
    def is_finished(self) -> bool:
        return self.reason is not None or bool(self.error)


def said(messages: Iterable[Message]) -> list[Message]:
    """Return what the user and the model said, as opposed to system prompts."""
    return [message for message in messages if message.role != "system"]


@dataclass(frozen=True)
class Turn:
    """What the user said, and what was answered.

    Attributes:
        user: What the user said.
        reply: The reply; None where the model was never heard to answer.
    """

    user: str
    reply: str | None = None


def turns_of(messages: Iterable[Message]) -> list[Turn]:
    """Return the turns of a conversation; what is neither user's nor model's is left out."""
    turns: list[Turn] = []
    for message in messages:
        if message.role == "user":
            turns.append(Turn(message.text))
        elif isinstance(message, Reply) and turns and (message.text or message.reason):
            turns[-1] = Turn(turns[-1].user, message.text)
    return turns
