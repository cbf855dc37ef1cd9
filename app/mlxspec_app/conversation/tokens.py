"""One token of a conversation: the cursor on it, and the facts about it.

The cursor moves by token, by round or by message. Moves by token and by round stop in replies only.
A message of the user is one stop, for moves by message. A move beyond either end goes to the last
stop there.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from mlxspec.trace.events import EmittedToken
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.conversation.rounds import MarkedToken, Round, positions

Step = Literal[1, -1]


@dataclass(frozen=True)
class TokenCursor:
    """A token, given by the index of its message and of its span in the message."""

    message: int
    span: int


def last_token(messages: Sequence[Message]) -> TokenCursor | None:
    """Return the newest token of a reply, or None."""
    for index in reversed(range(len(messages))):
        if _tokens(messages[index]):
            return TokenCursor(index, len(messages[index].spans) - 1)
    return None


def by_token(messages: Sequence[Message], at: TokenCursor, step: Step) -> TokenCursor:
    """Return the next token, or the one before."""
    return _moved(messages, at, step, _tokens)


def by_round(messages: Sequence[Message], at: TokenCursor, step: Step) -> TokenCursor:
    """Return the first token of the next round, or of the round before."""
    return _moved(messages, at, step, _rounds)


def by_message(messages: Sequence[Message], at: TokenCursor, step: Step) -> TokenCursor:
    """Return the first token of the next message, or of the message before."""
    return _moved(messages, at, step, lambda message: range(min(1, len(message.spans))))


def _moved(
    messages: Sequence[Message],
    at: TokenCursor,
    step: Step,
    stops_of: Callable[[Message], Sequence[int]],
) -> TokenCursor:
    """Return the next stop in a direction; `stops_of` gives the spans of a message to stop at."""
    own = stops_of(messages[at.message])
    index = bisect_right(own, at.span) - 1 + step
    if own and 0 <= index < len(own):
        return TokenCursor(at.message, own[index])
    others = range(at.message + 1, len(messages)) if step > 0 else reversed(range(at.message))
    for other in others:
        if stops := stops_of(messages[other]):
            return TokenCursor(other, stops[0 if step > 0 else -1])
    return at if step > 0 else TokenCursor(at.message, own[0] if own else at.span)


def _tokens(message: Message) -> Sequence[int]:
    return range(len(message.spans)) if isinstance(message, Reply) else ()


def _rounds(message: Message) -> Sequence[int]:
    """Return the index of the first span of each round of a reply."""
    if not _tokens(message):
        return ()
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
