"""The messages of a conversation: text in spans, each with its origin; and words found in it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from mlxspec.trace import events as trace
from mlxspec.trace.difference import common_length
from mlxspec.trace.speedup import RoundCosts, TimedRound
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.rounds import Pace, Round
from mlxspec_app.text.safe_text import safe_text

_FEWEST_COPIED = 8  # short replies are alike without being copies

OWN_PROMPT = "(the model's own)"
"""Stands for the system prompt after `/system -`: an empty message would be an empty box."""

_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Span:
    """Text that one emitted token released, with p and q, if known."""

    text: str
    kind: trace.TokenKind | None = None  # None outside of replies
    round: int = 0
    target_prob: float | None = None
    draft_prob: float | None = None
    source: str = ""  # the drafter; "" for a token that was not drafted
    channel: trace.Channel = "answer"

    @classmethod
    def of(cls, token: trace.EmittedToken, r: int, source: str) -> "Span":
        p, q = token.target_prob, token.draft_prob
        return cls(token.text, token.kind, r, p, q, source, token.channel)


@dataclass(eq=False)
class Message:
    """One message; spans are added at the end only, so those of an earlier state are a prefix."""

    role: str  # "user", "system" or "assistant"
    spans: list[Span] = field(default_factory=list)
    number: int = field(default_factory=lambda: next(_NUMBERS))  # the same in all its states

    @property
    def text(self) -> str:
        """The exact text, control characters included."""
        return "".join(span.text for span in self.spans)


@dataclass(eq=False)
class Reply(Message):
    """A message of the model, and how it was generated."""

    role: str = "assistant"
    started: trace.GenerationStarted | None = None
    kept: trace.TokensKept | None = None  # tokens of an earlier reply that start a branch
    prefill: trace.PrefillProgress | None = None
    stats: GenerationStats = field(default_factory=GenerationStats)
    rounds: list[Round] = field(default_factory=list)  # all finished target forwards
    pace: Pace = field(default_factory=Pace)  # the running totals of the rounds
    reason: trace.FinishReason | None = None  # None while it is written and after a failure
    drafter_fault: str = ""  # why it continued without drafts
    error: str = ""  # what ended it
    traceback: str = ""
    peak_memory: float | None = None  # GB
    proof: str = ""  # the comparison with plain decoding in words
    is_proven: bool | None = None  # whether its text is that of plain decoding
    cost: trace.CostMeasured | None = None  # measured right after it, else the last one before it
    tokens: list[int] = field(default_factory=list)
    timed: list[TimedRound] = field(default_factory=list)
    earlier: RoundCosts = field(default_factory=RoundCosts)  # of the replies before it
    told: tuple[int, float | None] = (0, None)  # number of rounds, and the ratio after them
    num_copied: int = 0  # first tokens that repeat an earlier reply
    measured: trace.SpeedupMeasured | None = None  # its final comparison with plain decoding

    @property
    def is_copy(self) -> bool:
        """Whether the drafter has seen most of this reply before: its speed says little then."""
        return self.num_copied >= max(_FEWEST_COPIED, self.stats.generated_tokens / 2)

    @property
    def emitted(self) -> list[trace.EmittedToken]:
        """Its tokens, those of an earlier reply first; text that came with its end is in none."""
        told = [round_.verdict for round_ in self.rounds]
        return [token for event in (self.kept, *told) if event is not None for token in event.emit]

    @property
    def is_finished(self) -> bool:
        return self.reason is not None or bool(self.error)

    @property
    def is_loop(self) -> bool:
        """Whether it ended because it repeated itself, which makes drafting easy."""
        return self.reason == "repeating"


def num_copied(tokens: Sequence[int], earlier: Iterable[Sequence[int]], num_kept: int) -> int:
    """Return how many first tokens of a reply are those of an earlier one.

    A drafter that learns from text drafts all of a reply that repeats one that it has seen. The
    speed of such a copy says nothing about new replies, so it is marked and left out of averages.
    The first `num_kept` tokens were given to the reply and do not count.
    """
    alike = max((common_length(tokens, seen) for seen in earlier), default=0)
    return max(0, alike - num_kept)


def without_system(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without the system prompts."""
    return [message for message in messages if message.role != "system"]


@dataclass(frozen=True)
class Turn:
    """A message of the user and the reply to it, if any, with its tokens, if known."""

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


class Hit(NamedTuple):
    """A match; `line` is a line of the drawn text of `message`, and `end` follows the match."""

    message: Message
    line: int
    start: int
    end: int


def find_words(messages: Iterable[Message], words: str) -> list[Hit]:
    """Return the matches, oldest first; case is ignored."""
    if not words.strip():
        return []
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    return [
        Hit(message, number, *found.span())
        for message in messages
        for number, line in enumerate(safe_text(message.text).split("\n"))
        for found in pattern.finditer(line)
    ]
