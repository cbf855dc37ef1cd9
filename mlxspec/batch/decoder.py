"""A model over several sequences at once: one forward for a draft tree after each sequence.

Another decoder reads the prompts. Then the rows of a prompt are copied into a slot, and its
hidden-state readers continue with the states of that slot.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.decoder.hidden import HiddenStateReader, HiddenStates, Readers
from mlxspec.drafts.tree import DraftTree, check_branch
from mlxspec.kv.batch import BatchCache
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import batch_layout
from mlxspec.models import TargetModel


class BatchDecoder:
    """Runs one model over the sequences of a batch, each in its slot of `cache`."""

    def __init__(self, model: TargetModel, like: Cache, num_slots: int) -> None:
        """Start with `num_slots` empty sequences and a cache of the same kind as `like`."""
        self.model = model
        self.cache = BatchCache(like, num_slots)
        self._windows = tuple(dict.fromkeys(model.config.layer_windows))
        self._readers = [Readers() for _ in range(num_slots)]
        self._staged: list[tuple[list[int], list[int], HiddenStates]] = []  # tokens, parents

    def join(self, slot: int, cache: Cache, readers: Sequence[HiddenStateReader] = ()) -> None:
        """Put a prefilled sequence into a slot; its rows are copied from a full cache.

        `readers` already have the states of these rows, and will get those of later ones.
        """
        self._staged = []
        self.cache.fill(slot, cache)
        self._readers[slot] = Readers(readers)
        mx.eval(self.cache.arrays)  # now, so that `cache` can get another text without a copy

    def detach(self, slot: int) -> None:
        """Pass the states of a slot to no reader."""
        self._readers[slot] = Readers()

    def grow(self, count: int) -> None:
        """Append empty slots."""
        self._staged = []
        self.cache.add(count)
        self._readers += [Readers() for _ in range(count)]

    def keep(self, slots: Sequence[int]) -> None:
        """Keep only the sequences in these slots, in this order."""
        self._staged = []
        self.cache.keep(slots)
        self._readers = [self._readers[slot] for slot in slots]
        mx.eval(self.cache.arrays)

    def forward_trees(self, trees: Sequence[DraftTree]) -> mx.array:
        """Stage a tree after every sequence; nothing is committed yet.

        There is one tree per slot, padded to the widest. Returns (n, D) lazy hidden states of all
        nodes, tree after tree.
        """
        if len(trees) != self.cache.num_sequences:
            raise ValueError(f"got {len(trees)} trees for {self.cache.num_sequences} sequences")
        self.cache.rollback()
        self._staged = []
        rows = max(tree.n_nodes for tree in trees)
        tokens, parents = [], []
        for tree in trees:  # padded on the host: these arrays are evaluated, so nothing waits here
            missing = rows - tree.n_nodes
            own_tokens, own_parents = tree.lists()
            tokens.append([*own_tokens, *own_tokens[:1] * missing])
            parents.append([*own_parents, *[0] * missing])
        self.cache.states.expect_rows(parents)
        positions, masks = batch_layout(self.cache.offsets, parents, self._windows)
        capture = sorted({layer for readers in self._readers for layer in readers.capture})
        try:
            hidden, captured = self.model.hidden_states(
                mx.array(tokens, mx.int32), self.cache, positions, masks, capture=capture
            )
        except BaseException:  # an interrupt too must not leave rows in only some layers
            self.cache.rollback()
            raise
        for slot, tree in enumerate(trees):
            n = tree.n_nodes
            layers = (states[slot, :n] for states in captured)
            states = HiddenStates(hidden[slot, :n], dict(zip(capture, layers, strict=True)))
            self._staged.append((tokens[slot][:n], parents[slot][:n], states))
        return mx.concatenate([states.final for _, _, states in self._staged])

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Append the staged nodes on one path per tree to the sequences; roll back the others.

        A path lists node indices from the root (0) down, each the parent of the next; an empty path
        commits nothing.
        """
        if len(paths) != len(self._staged):
            raise ValueError(f"got {len(paths)} paths for {len(self._staged)} staged trees")
        for path, (_, parents, _) in zip(paths, self._staged, strict=True):
            check_branch(path, parents)
        self.cache.commit(paths)
        staged, self._staged = self._staged, []
        for path, readers, (tokens, _, states) in zip(paths, self._readers, staged, strict=True):
            if readers.members:
                readers.read([tokens[node] for node in path], states.rows(path))
