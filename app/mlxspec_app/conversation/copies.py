"""Finds replies that repeat an earlier one token by token.

A drafter that learns from text has seen such a reply and drafts all of it. Its speed says nothing
about new replies, so it is marked and left out of averages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxspec.trace.difference import common_length

_FEWEST_COPIED = 8  # short replies are alike without being copies
_MOST = 64  # replies that are compared; a drafter forgets old text too


def is_copy(num_copied: int, tokens: int) -> bool:
    """Return whether a reply whose first `num_copied` tokens are copied is mostly a copy."""
    return num_copied >= max(_FEWEST_COPIED, tokens / 2)


@dataclass(frozen=True)
class EarlierReplies:
    """The token ids of the replies that this session's drafter has seen, oldest first."""

    replies: tuple[tuple[int, ...], ...] = ()

    def after(self, tokens: Sequence[int]) -> "EarlierReplies":
        return EarlierReplies((*self.replies, tuple(tokens))[-_MOST:])

    def num_copied(self, tokens: Sequence[int], num_kept: int = 0) -> int:
        """Return how many first tokens of a reply are those of an earlier one.

        The first `num_kept` tokens were given to the reply and do not count.
        """
        alike = max((common_length(tokens, seen) for seen in self.replies), default=0)
        return max(0, alike - num_kept)
