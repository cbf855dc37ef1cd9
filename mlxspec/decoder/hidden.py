"""The target's hidden states, and the readers that receive them.

Trained drafters use the output of the final norm, and the states entering some layers. The normal
forwards capture these, and each commit passes the committed rows to the readers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx


@dataclass(frozen=True)
class HiddenStates:
    """Hidden states of L tokens; lazy until they are used."""

    final: mx.array  # (L, D) output of the final norm, which is the input of the output head
    # Per captured layer, the (L, D) states that enter it; the key `num_hidden_layers` is the output
    # of the last layer, before the norm.
    entering: Mapping[int, mx.array]

    def rows(self, rows: Sequence[int]) -> "HiddenStates":
        """Return the states of some tokens, in the given order."""
        if list(rows) == list(range(self.final.shape[0])):
            return self
        index = mx.array(list(rows), mx.int32)  # a slice would keep the memory of all rows
        entering = {layer: states[index] for layer, states in self.entering.items()}
        return HiddenStates(self.final[index], entering)


class HiddenStateReader(Protocol):
    """Receives the hidden states of every token of the target's history."""

    capture: tuple[int, ...]  # layers whose entering states it needs, with the final norm's output
    num_read: int  # tokens of the history that it has received so far

    def read(self, tokens: Sequence[int], states: HiddenStates) -> None:
        """Receive the next tokens of the history; `states` may have more layers than `capture`."""

    def forget(self, length: int) -> None:
        """Keep only the first `length` tokens; `length` is at most `num_read`.

        0 must reset the reader completely, also after an interrupted `read`.
        """


class Readers:
    """All readers of one history."""

    def __init__(self, readers: Sequence[HiddenStateReader] = ()) -> None:
        self.members = tuple(readers)

    @property
    def capture(self) -> tuple[int, ...]:
        """The layers that at least one reader needs, in ascending order."""
        return tuple(sorted({layer for reader in self.members for layer in reader.capture}))

    def has_read(self, length: int) -> bool:
        """Return whether every reader has received exactly `length` tokens."""
        return all(reader.num_read == length for reader in self.members)

    def read(self, tokens: Sequence[int], states: HiddenStates) -> None:
        """Pass the next tokens to all readers."""
        for reader in self.members:
            reader.read(tokens, states)

    def forget(self, length: int) -> None:
        """Make every reader keep at most the first `length` tokens."""
        for reader in self.members:
            reader.forget(min(length, reader.num_read))
