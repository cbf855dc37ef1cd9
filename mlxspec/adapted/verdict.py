"""The verdict of an examination: which drafts a model verifies exactly, and why not more."""

from dataclasses import dataclass

from mlxspec.models import DraftSupport, drafts_in_words


@dataclass(frozen=True)
class Verdict:
    """What an examination found.

    Attributes:
        support: The drafts that the model can verify; None where even its text differs.
        reason: Why it is not more than that, in words; "" for trees.
        error: Largest relative error of what is supported.
        seconds: Time of the examination.
        batches: Whether one forward over several sequences is exact, too.
    """

    support: DraftSupport | None
    reason: str
    error: float
    seconds: float
    batches: bool = False

    @property
    def words(self) -> str:
        """What it can verify in words, and why not more."""
        if self.support is None:
            return f"no target ({self.reason})"
        return drafts_in_words(self.support, self.reason)
