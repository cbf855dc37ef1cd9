"""The size of a batch: how many sequences share a forward, and how many rows it has."""

from dataclasses import dataclass, replace

from mlxspec.params.checks import set_fields, whole

DEFAULT_BATCH_SIZE = 8
DEFAULT_ROWS_PER_ROUND = 64


@dataclass(frozen=True)
class BatchSettings:
    """The size of a batch.

    Attributes:
        batch_size: Maximum number of sequences decoded together.
        rows_per_round: Rows of one forward that drafts may fill. Every sequence has its root in
            each round, and the other rows are divided equally: a tree has at most `rows_per_round
            // sequences` rows, and at most its own `num_draft_tokens`. With a measured cost curve,
            trees are cut to the fastest width.

    Raises:
        ValueError: A value is no integer, or less than 1.
    """

    batch_size: int = DEFAULT_BATCH_SIZE
    rows_per_round: int = DEFAULT_ROWS_PER_ROUND

    def __post_init__(self) -> None:
        set_fields(
            self,
            batch_size=whole("batch_size", self.batch_size, "1 or more", least=1),
            rows_per_round=whole(
                "rows_per_round", self.rows_per_round, "1 (plain decoding) or more", least=1
            ),
        )

    def for_prompts(self, count: int) -> "BatchSettings":
        """Return these settings with no more slots than `count` prompts need."""
        return replace(self, batch_size=max(1, min(self.batch_size, count)))

    def nodes_each(self, num_sequences: int) -> int:
        """Return how many nodes each of `num_sequences` may draft, without its root."""
        return max(0, self.rows_per_round // num_sequences - 1)
