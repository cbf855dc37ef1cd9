"""The verdict of an examination: which drafts a model verifies exactly, and why not more."""

from dataclasses import dataclass, field

from mlxspec.models import CacheKind, DraftSupport, drafts_in_words


@dataclass(frozen=True)
class Verdict:
    """What an examination found.

    Attributes:
        support: The drafts that the model can verify; None where even its text differs.
        reason: Why it is not more than that, in words; "" for trees.
        error: Largest relative error of what is supported.
        seconds: Time of the examination.
        batches: Whether one forward over several sequences is exact, too.
        refused_caches: The kinds of cache over which the model is not exact, and why.
    """

    support: DraftSupport | None
    reason: str
    error: float
    seconds: float
    batches: bool = False
    refused_caches: dict[CacheKind, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """What it can verify in words, and why not more."""
        if self.support is None:
            return f"no target ({self.reason})"
        words = drafts_in_words(self.support, self.reason)
        return "; ".join([words, *(f"no {kind} cache" for kind in self.refused_caches)])
