"""A model over several sequences at once: one forward for a draft tree behind each sequence."""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.device.backend import values
from mlxspec.drafts.tree import DraftTree, check_branch
from mlxspec.kv.batch import BatchCache
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import batch_layout
from mlxspec.models import TargetModel


class BatchDecoder:
    """Runs one model over the sequences of a batch, each in its slot.

    Attributes:
        model: The model.
        cache: The rows of all sequences; changed by this class only.
    """

    def __init__(self, model: TargetModel, like: Cache, num_slots: int) -> None:
        """Begin with `num_slots` empty sequences and a cache of the same kind as `like`.

        Raises:
            UnsupportedOperationError: `like` rotates.
        """
        self.model = model
        self.cache = BatchCache.like(like, num_slots)
        self._windows = tuple(dict.fromkeys(model.config.layer_windows))
        self._staged: list[list[int]] = []  # parents of the nodes of each tree

    @property
    def num_slots(self) -> int:
        """Number of slots, one sequence each."""
        return self.cache.num_sequences

    def join(self, slot: int, cache: Cache) -> None:
        """Put a prefilled sequence into a slot; its rows are copied from a full cache."""
        self._staged = []
        self.cache.fill(slot, cache)
        mx.eval(self.cache.arrays)

    def keep(self, slots: Sequence[int]) -> None:
        """Keep only the sequences in these slots, in the order given."""
        self._staged = []
        self.cache.keep(slots)
        mx.eval(self.cache.arrays)

    def forward_trees(self, trees: Sequence[DraftTree]) -> mx.array:
        """Stage a tree behind every sequence; nothing is committed yet.

        Args:
            trees: One per slot; their sizes may differ.

        Returns:
            (n, D) lazy hidden states of all nodes, tree after tree.

        Raises:
            ValueError: The number of trees is not the number of slots.
        """
        if len(trees) != self.num_slots:
            raise ValueError(f"got {len(trees)} trees for {self.num_slots} sequences")
        self.cache.rollback()
        rows = max(tree.n_nodes for tree in trees)
        tokens, parents = [], []
        for tree in trees:  # padded on the host: these arrays are evaluated, so nothing waits here
            missing = rows - tree.n_nodes
            own = values(tree.tokens)
            tokens.append([*own, *own[:1] * missing])
            parents.append([*values(tree.parents), *[0] * missing])
        self.cache.states.expect_rows(parents)
        layout = batch_layout(self.cache.offsets, parents, self._windows)
        try:
            hidden, _ = self.model.hidden_states(
                mx.array(tokens, mx.int32), self.cache, layout.positions, layout.masks
            )
        except BaseException:  # an interrupt too must not leave rows in some layers only
            self.cache.rollback()
            raise
        self._staged = [own[: t.n_nodes] for own, t in zip(parents, trees, strict=True)]
        return mx.concatenate([hidden[slot, : t.n_nodes] for slot, t in enumerate(trees)])

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Append the staged nodes on one path per tree to the sequences; roll back the others.

        Args:
            paths: Node indices from the root (0) down, each the parent of the next; an empty path
                commits nothing.

        Raises:
            ValueError: There is not one path per staged tree, or a path is no branch of its tree.
        """
        if len(paths) != len(self._staged):
            raise ValueError(f"got {len(paths)} paths for {len(self._staged)} staged trees")
        for path, parents in zip(paths, self._staged, strict=True):
            check_branch(path, parents)
        self.cache.commit(paths)
        self._staged = []
