"""Filters of a corpus: they drop replies that loop, are incomplete or break the chat template.

Small models repeat themselves in loops, most often when they decode greedily. Loops are long and
easy to predict, so a drafter would learn little else.
"""

from collections.abc import Sequence
from typing import Literal

Fault = Literal[
    "empty", "unfinished", "loop", "special token", "broken text", "too long", "rewritten", "double"
]
"""Why a conversation is dropped: the reply is empty; the user's turn did not end; the reply repeats
itself; it contains a special token; its bytes are not UTF-8; the conversation exceeds the context;
the chat template changes earlier turns; the corpus already holds the conversation.
"""

TAIL, MAX_PERIOD = 64, 24
MIN_DISTINCT = 0.55
_N = 4  # of the n-grams that should be distinct


class DroppedError(Exception):
    """A filter drops this conversation because of `fault`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault: Fault = fault


def has_periodic_tail(tokens: Sequence[int]) -> bool:
    """Return whether the last 64 tokens repeat with a period of 24 or less; False for fewer."""
    tail = list(tokens[-TAIL:])
    if len(tail) < TAIL:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, MAX_PERIOD + 1))


def distinct_share(tokens: Sequence[int]) -> float:
    """Return distinct 4-grams / all 4-grams; 1 if there are none."""
    grams = list(zip(*(tokens[start:] for start in range(_N)), strict=False))
    return len(set(grams)) / len(grams) if grams else 1.0


def check_reply(tokens: Sequence[int], special: frozenset[int]) -> None:
    """Raise `DroppedError` if a reply, without its end, is empty, loops or has a special token."""
    if not tokens:
        raise DroppedError("empty")
    if not special.isdisjoint(tokens):
        raise DroppedError("special token")
    if has_periodic_tail(tokens) or distinct_share(tokens) < MIN_DISTINCT:
        raise DroppedError("loop")
