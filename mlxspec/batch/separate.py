"""Sequences that cannot share a forward: each has a decoder, and they run one after the other.

A rotating cache evicts rows of each sequence at other slots. A drafter may continue the forward of
its own sequence. A target may verify no trees, but a batch of unequal drafts is a forward of trees.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStateReader
from mlxspec.drafts.tree import DraftTree


class SeparateDecoders:
    """Runs one model over the sequences of a batch in turn; methods as in `BatchDecoder`."""

    def __init__(self, target: Decoder) -> None:
        """Start with no sequence; caches will be like that of `target`."""
        self._like = target
        self._decoders: list[Decoder] = []

    @property
    def num_slots(self) -> int:
        """Number of slots, one sequence each."""
        return len(self._decoders)

    def reader(self) -> Decoder:
        """Return a new decoder, which reads a prompt and continues with it."""
        return self._like.apart()

    def seat(self, slot: int, reader: Decoder, readers: Sequence[HiddenStateReader] = ()) -> None:
        """Put a decoder with its text into a slot, or into a new one at the end."""
        self._decoders[slot : slot + 1] = [reader]

    def settle(self) -> None:
        """Do nothing: no two decoders share rows."""

    def detach(self, slot: int) -> None:
        """Pass the states of a slot to no reader."""
        self._decoders[slot].attach(())

    def length(self, slot: int) -> int:
        """Return the number of committed tokens of a sequence."""
        return len(self._decoders[slot])

    def num_rows(self, trees: Sequence[DraftTree]) -> int:
        """Return the rows of the forwards over trees."""
        return sum(tree.n_nodes for tree in trees)

    def lend(
        self, slot: int, tokens: Sequence[int], readers: Sequence[HiddenStateReader] = ()
    ) -> Decoder:
        """Return the decoder of a slot, which already holds the text."""
        return self._decoders[slot]

    def keep(self, slots: Sequence[int]) -> None:
        """Keep only the sequences in these slots, in this order."""
        self._decoders = [self._decoders[slot] for slot in slots]

    def forward_trees(self, trees: Sequence[DraftTree]) -> mx.array:
        """Stage a tree after every sequence.

        Returns:
            (n, D) lazy hidden states of all nodes, tree after tree.
        """
        pairs = zip(self._decoders, trees, strict=True)
        return mx.concatenate([decoder.forward_tree(tree) for decoder, tree in pairs])

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Append the staged nodes on one path per tree to the sequences; forget the others."""
        for decoder, path in zip(self._decoders, paths, strict=True):
            decoder.commit(path)
