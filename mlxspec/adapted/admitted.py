"""The result of an examination: which drafts a model verifies exactly, and why not more."""

from dataclasses import dataclass, field

from mlxspec.models import CacheKind, DraftSupport, drafts_in_words


@dataclass(frozen=True)
class Admission:
    """What a model of mlx-lm is admitted for, by an examination.

    Attributes:
        support: The drafts that the model can verify; None if even its text differs.
        refused_caches: The kinds of cache over which the model is not exact, and why.
    """

    support: DraftSupport | None
    reason: str  # why the model cannot verify more, for display; "" for trees
    error: float  # largest relative error of the supported drafts
    seconds: float  # time of the examination
    batches: bool = False  # whether a forward over several sequences is exact, too
    refused_caches: dict[CacheKind, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """What it can verify, and why not more, for display."""
        if self.support is None:
            return f"no target ({self.reason})"
        words = drafts_in_words(self.support, self.reason)
        return "; ".join([words, *(f"no {kind} cache" for kind in self.refused_caches)])
