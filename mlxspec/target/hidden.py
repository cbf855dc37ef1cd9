"""The hidden states that a forward leaves behind, and who reads them.

Trained drafters look inside the target: at the final norm's output, at the states entering some
layers. These are captured in the target's normal forwards, of the prompt and of every draft
tree, and handed over row by row as tokens are committed; nothing is computed for them alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import mlx.core as mx


@dataclass(frozen=True)
class HiddenStates:
    """States of L tokens; lazy until somebody needs them.

    Attributes:
        final: (L, D) output of the final norm: what the head reads.
        entering: Per captured layer, the (L, D) states that enter it; the number of layers
            stands for the last one's output, before the norm.
    """

    final: mx.array
    entering: Mapping[int, mx.array]

    def rows(self, rows: Sequence[int]) -> "HiddenStates":
        """Return the states of some tokens, in the order given."""
        if list(rows) == list(range(self.final.shape[0])):
            return self
        index = mx.array(list(rows), mx.int32)  # a slice would hold on to all rows
        return self._map(lambda states: states[index])

    def _map(self, take: Callable[[mx.array], mx.array]) -> "HiddenStates":
        entering = {layer: take(states) for layer, states in self.entering.items()}
        return HiddenStates(take(self.final), entering)


@runtime_checkable
class HiddenStateReader(Protocol):
    """Is told the hidden states of every token of the target's history.

    Attributes:
        capture: The layers whose entering states it wants, beside the final norm's output.
        num_read: Tokens of the history read so far.
    """

    capture: tuple[int, ...]
    num_read: int

    def read(self, tokens: Sequence[int], states: HiddenStates) -> None:
        """Take the next tokens of the history; states may hold more layers than asked for."""

    def forget(self, length: int) -> None:
        """Keep the first `length` tokens only; they are as many as read, or fewer.

        With 0 it begins anew, whatever an interrupted `read` left behind.
        """


class Audience:
    """Those who read one history.

    Attributes:
        readers: All of them.
    """

    def __init__(self, readers: Sequence[HiddenStateReader] = ()) -> None:
        self.readers = tuple(readers)

    @property
    def capture(self) -> tuple[int, ...]:
        """The layers that any of them wants, in ascending order."""
        return tuple(sorted({layer for reader in self.readers for layer in reader.capture}))

    def has_read(self, length: int) -> bool:
        """Return whether all of them have read just so many tokens."""
        return all(reader.num_read == length for reader in self.readers)

    def read(self, tokens: Sequence[int], states: HiddenStates) -> None:
        """Tell all of them the next tokens."""
        for reader in self.readers:
            reader.read(tokens, states)

    def forget(self, length: int) -> None:
        """Let those who have read more keep the first `length` tokens only."""
        for reader in self.readers:
            reader.forget(min(length, reader.num_read))
