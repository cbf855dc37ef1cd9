"""The messages of a conversation: text in spans, each with its origin."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from mlxspec.trace.events import (
    Channel,
    CostMeasured,
    EmittedToken,
    FinishReason,
    GenerationStarted,
    PrefillProgress,
    SpeedupMeasured,
    TokenKind,
    TokensKept,
)
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.copies import is_copy
from mlxspec_app.conversation.pace import Pace
from mlxspec_app.conversation.rounds import Round

OWN_PROMPT = "(the model's own)"
"""Stands for the system prompt after `/system -`: an empty message would be an empty box."""

_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Span:
    """Text that one emitted token released.

    Attributes:
        text: The exact characters.
        kind: Who wrote the token; None outside of replies.
        round: Number of the target forward.
        target_prob: p, or None if unknown.
        draft_prob: q, or None if unknown.
        source: Name of the drafter that proposed it; "" for a token that was not drafted.
        channel: The part of the reply: its reasoning, the marks around that, or the answer.
    """

    text: str
    kind: TokenKind | None = None
    round: int = 0
    target_prob: float | None = None
    draft_prob: float | None = None
    source: str = ""
    channel: Channel = "answer"

    @classmethod
    def of(cls, token: EmittedToken, r: int, source: str) -> "Span":
        """Return the text of a token that round `r` emitted."""
        p, q = token.target_prob, token.draft_prob
        return cls(token.text, token.kind, r, p, q, source, token.channel)


@dataclass(eq=False)
class Message:
    """One message. Spans are added at the end only.

    Attributes:
        role: "user", "system" or "assistant".
        spans: Its text in pieces.
        number: Unique in the process. Earlier states of a message have the same number and are
            prefixes of its spans.
    """

    role: str
    spans: list[Span] = field(default_factory=list)
    number: int = field(default_factory=lambda: next(_NUMBERS))

    @property
    def text(self) -> str:
        """The exact text, control characters included."""
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True)
class PlainSpeed:
    """The speed of plain decoding at the context of a reply.

    Attributes:
        tps: Tokens/s.
        context: Tokens in the cache for which it holds.
        measured_at: Tokens in the cache when it was measured; between two it is interpolated.
    """

    tps: float
    context: int
    measured_at: tuple[int, ...]


@dataclass(eq=False)
class Reply(Message):
    """A message of the model, and how it was generated.

    Attributes:
        started: Models and settings; None before the generation starts.
        kept: The tokens with which it began: a branch of an earlier reply; None for no branch.
        prefill: The last progress of the prefill.
        stats: Its figures so far.
        rounds: All finished target forwards.
        pace: Their running totals.
        reason: Why it ended; None while it is written and after a failure.
        drafter_fault: Why it continued without drafts, or "".
        error: The error that ended it, or "".
        traceback: The traceback of that error.
        peak_memory: Peak memory in GB, if the engine reports it.
        proof: The result of the comparison with plain decoding, in words; "" before it.
        is_proven: Whether it is the text of plain decoding; None if unknown.
        cost: The cost curve measured right after it, else the last one before it, or None.
        tokens: The ids of its tokens.
        plain: The speed of plain decoding at its context, as far as measured.
        num_copied: Its first tokens that are those of an earlier reply.
        measured: Its comparison with plain decoding, once it is final.
    """

    role: str = "assistant"
    started: GenerationStarted | None = None
    kept: TokensKept | None = None
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
    tokens: list[int] = field(default_factory=list)
    plain: PlainSpeed | None = None
    num_copied: int = 0
    measured: SpeedupMeasured | None = None

    @property
    def is_copy(self) -> bool:
        """Whether the drafter has seen most of this reply before: its speed says little then."""
        return is_copy(self.num_copied, self.stats.generated_tokens)

    @property
    def is_finished(self) -> bool:
        return self.reason is not None or bool(self.error)

    @property
    def is_loop(self) -> bool:
        """Whether it ended because it repeated itself: its drafts were right without merit."""
        return self.reason == "repeating"


def without_system(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without the system prompts."""
    return [message for message in messages if message.role != "system"]


@dataclass(frozen=True)
class Turn:
    """A message of the user and the reply to it.

    Attributes:
        user: The message.
        reply: The reply; None if there is none.
        tokens: Token ids of the reply, as far as they are known.
    """

    user: str
    reply: str | None = None
    tokens: tuple[int, ...] = ()


def turns_of(messages: Iterable[Message]) -> list[Turn]:
    """Return the turns of a conversation, without system prompts and empty replies."""
    turns: list[Turn] = []
    for message in messages:
        if message.role == "user":
            turns.append(Turn(message.text))
        elif isinstance(message, Reply) and turns and (message.text or message.reason):
            turns[-1] = Turn(turns[-1].user, message.text, tuple(message.tokens))
    return turns
