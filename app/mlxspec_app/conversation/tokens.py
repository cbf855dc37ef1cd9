"""One token of a conversation: the cursor on it, and the facts about it.

The cursor moves by token, by round or by message. Moves by token and by round stop in replies only.
A message of the user is one stop, for moves by message. A move beyond either end goes to the last
stop there.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from mlxspec.trace.events import EmittedToken
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.conversation.rounds import MarkedToken, Round, positions

Step = Literal[1, -1]
Unit = Literal["token", "round", "message"]


@dataclass(frozen=True)
class TokenCursor:
    """A token, given by the index of its message and of its span in the message."""

    message: int
    span: int


def last_token(messages: Sequence[Message]) -> TokenCursor | None:
    """Return the newest token of a reply, or None."""
    for index in reversed(range(len(messages))):
        if _stops(messages[index], "token"):
            return TokenCursor(index, len(messages[index].spans) - 1)
    return None


def moved(messages: Sequence[Message], at: TokenCursor, unit: Unit, step: Step) -> TokenCursor:
    """Return the first token of the next unit, or of the one before."""
    own = _stops(messages[at.message], unit)
    index = bisect_right(own, at.span) - 1 + step
    if own and 0 <= index < len(own):
        return TokenCursor(at.message, own[index])
    others = range(at.message + 1, len(messages)) if step > 0 else reversed(range(at.message))
    for other in others:
        if stops := _stops(messages[other], unit):
            return TokenCursor(other, stops[0 if step > 0 else -1])
    return at if step > 0 else TokenCursor(at.message, own[0] if own else at.span)


def _stops(message: Message, unit: Unit) -> Sequence[int]:
    """Return the index of the first span of each unit of a message, where the cursor stops."""
    if unit == "message":
        return range(min(1, len(message.spans)))
    if not message.spans or not isinstance(message, Reply):
        return ()
    if unit == "token":
        return range(len(message.spans))
    changes = enumerate(pairwise(message.spans), 1)
    return [0, *(index for index, (before, span) in changes if span.round != before.round)]


@dataclass(frozen=True)
class TokenFacts:
    """A token of a reply: who wrote it, when, its probabilities, its rivals."""

    token: EmittedToken
    text: str
    round: int  # 0 for a kept token
    depth: int  # position in the round, from 1
    source: str  # "" for a token that was not drafted
    index: int = 0  # position in the reply
    rivals: tuple[MarkedToken, ...] = ()  # rejected at this position, the most probable first


def facts_of(reply: Reply, span: int) -> TokenFacts | None:
    """Return the facts about the token of a span; None for text that no token released."""
    number = index = 0
    for index, token in enumerate(reply.kept.emit if reply.kept is not None else (), 1):
        if token.text and number == span:
            return TokenFacts(token, token.text, 0, index, "", index - 1)
        number += bool(token.text)
    for round_ in reply.rounds:
        # a token that ends inside a character releases no text, so it has no span
        shown = [depth for depth, token in enumerate(round_.verdict.emit) if token.text]
        if span < number + len(shown):
            return _facts(round_, shown[span - number], index)
        number += len(shown)
        index += len(round_.verdict.emit)
    return None


def round_of(reply: Reply, span: int) -> Round | None:
    """Return the round that emitted the token of a span, if any did."""
    number = reply.spans[span].round
    return next((each for each in reply.rounds if each.verdict.r == number), None)


def _facts(round_: Round, depth: int, num_before: int) -> TokenFacts:
    token = round_.verdict.emit[depth]
    judged = positions(round_)[depth : depth + 1]
    rivals = tuple(one for found in judged for one in found if one.mark == "rejected")
    source, index = round_.sources[depth], num_before + depth
    return TokenFacts(token, token.text, round_.verdict.r, depth + 1, source, index, rivals)
