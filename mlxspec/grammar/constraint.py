"""Where one reply stands in its grammar, and what may follow, there and after draft tokens.

What may follow depends on the emitted tokens alone. A matcher walks from node to node of a draft
tree: it goes back to the common path and reads on. Where the text of the next tokens is certain,
only one spelling of it in tokens is allowed, that of the tokenizer; this, too, is a function of the
text before.

A reply that begins inside its reasoning is free until that is over; the grammar is of its answer.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import UnsupportedOperationError
from mlxspec.reasoning import ChannelTracker
from mlxspec.trace.difference import common_length

Path = tuple[int, ...]


@dataclass(frozen=True)
class Allowed:
    """What may follow a text.

    Attributes:
        bits: (V,) uint8, 1 at each allowed token of the tokenizer; ones without meaning where the
            text is whole.
        count: Number of allowed tokens; 0 where the grammar is at a dead end.
        is_complete: Whether the text is whole: nothing may follow.
    """

    bits: NDArray[np.uint8]
    count: int
    is_complete: bool = False

    @property
    def forced(self) -> int | None:
        """The one token that may follow; None where there is a choice, or none may."""
        return int(self.bits.argmax()) if self.count == 1 and not self.is_complete else None

    def has(self, token: int) -> bool:
        """Return whether a token may follow."""
        return not self.is_complete and token < len(self.bits) and bool(self.bits[token])

    def tokens(self) -> list[int]:
        """Return the allowed tokens."""
        return [] if self.is_complete else np.flatnonzero(self.bits).tolist()


class Constraint:
    """A grammar and the text of one reply so far."""

    def __init__(
        self, matcher: Any, vocab_size: int, end_tokens: Iterable[int], channels: ChannelTracker
    ) -> None:
        """Begin a reply.

        Args:
            matcher: A matcher of llguidance at the begin of a text.
            vocab_size: Number of tokens of the tokenizer.
            end_tokens: Tokens of the model that end the reply where the grammar may end; with none
                the reply goes on as long as anything may follow.
            channels: Tells where the reasoning ends; at the begin of the reply.
        """
        self._begin, self._matcher = matcher, matcher.deep_copy()
        self._end_tokens = sorted(token for token in end_tokens if token < vocab_size)
        self._vocab_size = vocab_size
        self._channels = copy(channels)
        self._read: list[int] = []  # emitted tokens that the grammar is of
        self._below: list[int] = []  # what the matcher has read after these
        self._found: dict[Path, Allowed | None] = {}  # by path below the emitted tokens
        everything = np.ones(vocab_size, np.uint8)
        self._free = Allowed(everything, vocab_size)
        self._over = Allowed(everything, 0, is_complete=True)

    def read(self, token: int) -> None:
        """Go on with an emitted token.

        Raises:
            ValueError: The grammar forbids it: a caller's sampler chose it.
            UnsupportedOperationError: No token of the model continues the text, or the grammar is
                too costly there.
        """
        after = self.allowed((token,))
        if after is None:
            raise ValueError(f"the sampler chose token {token}, which the grammar forbids here")
        if not self._channels.is_in_answer:
            self._channels.next(token)
        elif token not in self._end_tokens:
            if self._below[:1] != [token]:
                self._go([token])
            self._read.append(token)
            self._below = self._below[1:]
        self._found = {
            path[1:]: found for path, found in self._found.items() if path[:1] == (token,)
        }
        if not (after.count or after.is_complete):
            raise UnsupportedOperationError(
                "the grammar cannot go on here: no token of this model continues the text, or what "
                "may follow is too costly to find; give a simpler grammar"
            )

    @property
    def is_complete(self) -> bool:
        """Whether the text is whole."""
        after = self.allowed(())
        return after is not None and after.is_complete

    def allowed(self, path: Path) -> Allowed | None:
        """Return what may follow the emitted tokens and a path; None where the path is forbidden.

        Args:
            path: Tokens after the last emitted one.
        """
        if path not in self._found:
            self._found[path] = self._after(path)
        return self._found[path]

    def forced_run(self, most: int) -> Path:
        """Return the tokens that follow for certain, `most` at most."""
        run: Path = ()
        while len(run) < most:
            after = self.allowed(run)
            if after is None or after.forced is None:
                break
            run = (*run, after.forced)
        return run

    def ending(self, most: int) -> Path:
        """Return the tokens of a run that makes the text whole, at most `most`; else no token."""
        run = self.forced_run(most)
        after = self.allowed(run)
        return run if after is not None and after.is_complete else ()

    # ---- the matcher -----------------------------------------------------------------------

    def _after(self, path: Path) -> Allowed | None:
        if path:
            before = self.allowed(path[:-1])
            if before is None or not before.has(path[-1]):
                return None
        num_free = self._num_free(path)
        if num_free is None:
            return self._free
        if path and path[-1] in self._end_tokens and num_free < len(path):
            return self._over
        return self._at(list(path[num_free:]))

    def _num_free(self, path: Path) -> int | None:
        """Return how many tokens of a path belong to the reasoning; None where it goes on."""
        channels = copy(self._channels)
        for index, token in enumerate(path):
            if channels.is_in_answer:
                return index
            channels.next(token)
        return len(path) if channels.is_in_answer else None

    def _at(self, below: list[int]) -> Allowed:
        """Return what may follow tokens after those read, each of them allowed."""
        if self._go(below):
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            if not self._matcher.is_error():
                return self._allowed(np.unpackbits(bits, bitorder="little"))
        self._restart()
        return Allowed(np.zeros(self._vocab_size, np.uint8), 0)

    def _go(self, below: list[int]) -> bool:
        """Move the matcher; return whether it could."""
        shared = common_length(below, self._below)
        if shared < len(self._below):
            self._matcher.rollback(len(self._below) - shared)
        added, self._below = below[shared:], below
        return not added or self._matcher.try_consume_tokens(added) == len(added)

    def _allowed(self, bits: NDArray[np.uint8]) -> Allowed:
        may_end, bits = bits[self._vocab_size], bits[: self._vocab_size]
        if may_end and not bits.any():
            return self._over
        if may_end:
            bits[self._end_tokens] = 1
        return Allowed(bits, int(np.count_nonzero(bits)))

    def _restart(self) -> None:
        """Bring the matcher to the emitted tokens anew: after an error it never goes back."""
        self._matcher, self._below = self._begin.deep_copy(), []
        self._matcher.try_consume_tokens(self._read)
