"""What came of decoding a reply once more without drafts."""

from dataclasses import dataclass

from mlxspec.trace.difference import Difference
from mlxspec.trace.near_tie import verdict_on


@dataclass(frozen=True)
class Proof:
    """How far a reply is the text of plain decoding.

    Attributes:
        num_tokens: Tokens of the reply.
        num_same: Tokens that are the same, from the first on.
        difference: What follows them; None where the reply is the same to its end, or the
            comparison was stopped.
        drafted: The token that was written there with drafts, as text; "" for none.
        plain: The token that was written without, likewise.
    """

    num_tokens: int
    num_same: int
    difference: Difference | None = None
    drafted: str = ""
    plain: str = ""

    @property
    def is_identical(self) -> bool:
        return self.num_same == self.num_tokens and self.difference is None

    def describe(self) -> str:
        """Return the outcome in a line."""
        if self.is_identical:
            return f"identical to plain decoding: {self.num_tokens} of {self.num_tokens} tokens"
        found = self.difference
        if found is None:
            return f"the same for {self.num_same} tokens of {self.num_tokens}, then stopped"
        verdict = verdict_on(found.gap, found.near_tie)
        if found.gap is None:
            return f"the same for {self.num_same} tokens, then one of the two ends: {verdict}"
        return (
            f"the same for {self.num_same} tokens of {self.num_tokens}, then {self.drafted!r} "
            f"(logit {found.token_logit:.4f}) with drafts and {self.plain!r} "
            f"({found.expected_logit:.4f}) without: a gap of {found.gap:.2g}, {verdict}"
        )
