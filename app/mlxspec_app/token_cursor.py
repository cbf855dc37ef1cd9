"""A place among the tokens of all replies, moved by token, by round and by reply."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from mlxspec_app.messages import Reply


@dataclass(frozen=True)
class TokenCursor:
    """A token.

    Attributes:
        reply: Index among the replies.
        span: Index among the spans of that reply.
    """

    reply: int
    span: int


def last_token(replies: Sequence[Reply]) -> TokenCursor | None:
    """Return the newest token, or None where there is none."""
    written = [index for index, reply in enumerate(replies) if reply.spans]
    return TokenCursor(written[-1], len(replies[written[-1]].spans) - 1) if written else None


def by_token(replies: Sequence[Reply], at: TokenCursor, step: int) -> TokenCursor:
    """Return the place some tokens on; at the ends it stays."""
    return _move(_tokens(replies), at, step)


def by_round(replies: Sequence[Reply], at: TokenCursor, step: int) -> TokenCursor:
    """Return the first token of the round some rounds on; at the ends it stays."""
    return _move(_starts(replies, by_reply=False), at, step)


def by_reply(replies: Sequence[Reply], at: TokenCursor, step: int) -> TokenCursor:
    """Return the first token of the reply some replies on; at the ends it stays."""
    return _move(_starts(replies, by_reply=True), at, step)


def _tokens(replies: Sequence[Reply]) -> list[TokenCursor]:
    return [
        TokenCursor(index, span)
        for index, reply in enumerate(replies)
        for span in range(len(reply.spans))
    ]


def _starts(replies: Sequence[Reply], *, by_reply: bool) -> list[TokenCursor]:
    def group(at: TokenCursor) -> tuple[int, int]:
        return at.reply, 0 if by_reply else replies[at.reply].spans[at.span].round

    return [next(members) for _, members in groupby(_tokens(replies), group)]


def _move(places: Sequence[TokenCursor], at: TokenCursor, step: int) -> TokenCursor:
    """Return the place `step` places from the last one that is not behind `at`."""
    order = [(place.reply, place.span) for place in places]
    here = bisect_right(order, (at.reply, at.span)) - 1
    there = max(0, here + step)
    return places[there] if there < len(places) else at
