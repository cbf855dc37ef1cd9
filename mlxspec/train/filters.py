"""What is not worth learning from: replies that loop, break off or fall out of the template.

Small models loop, most of all when they decode greedily. A drafter would learn the loop by heart
and little else, since loops are long and easy.
"""

from collections.abc import Sequence
from typing import Literal

Fault = Literal[
    "empty", "unfinished", "loop", "special token", "broken text", "too long", "rewritten", "double"
]
"""Why a conversation is dropped: nothing was said; the user's turn did not end; it repeats itself;
a special token stands inside; bytes are no text; it does not fit the context; the chat template
changes earlier turns; it is there already."""

TAIL, MAX_PERIOD = 64, 24
MIN_DISTINCT = 0.55
_N = 4  # of the n-grams that should be distinct


class DroppedError(Exception):
    """A conversation is not worth keeping.

    Attributes:
        fault: Why.
    """

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault: Fault = fault


def has_periodic_tail(tokens: Sequence[int]) -> bool:
    """Say whether the last 64 tokens repeat with a period of 24 or less; fewer never do."""
    tail = list(tokens[-TAIL:])
    if len(tail) < TAIL:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, MAX_PERIOD + 1))


def distinct_share(tokens: Sequence[int]) -> float:
    """Return the share of 4-grams that are not repeats of earlier ones; 1 where there are none."""
    grams = list(zip(*(tokens[start:] for start in range(_N)), strict=False))
    return len(set(grams)) / len(grams) if grams else 1.0


def check_reply(tokens: Sequence[int], special: frozenset[int]) -> None:
    """Check what a model said, without the token that ended it.

    Args:
        tokens: Its tokens.
        special: Tokens that are no text.

    Raises:
        DroppedError: It is empty, loops or holds a special token.
    """
    if not tokens:
        raise DroppedError("empty")
    if not special.isdisjoint(tokens):
        raise DroppedError("special token")
    if has_periodic_tail(tokens) or distinct_share(tokens) < MIN_DISTINCT:
        raise DroppedError("loop")
