"""The proof: a greedy reply, decoded again without drafts and compared token by token."""

from dataclasses import dataclass

from mlxspec.trace.difference import Difference
from mlxspec.trace.near_tie import verdict_on


@dataclass(frozen=True)
class Proof:
    """How many tokens of a reply are those of plain decoding.

    Attributes:
        num_tokens: Number of tokens of the reply.
        num_same: Number of equal tokens, counted from the first token.
        difference: The first difference; None if the reply is identical to its end, or the
            comparison was stopped.
        drafted: Text of the token there with drafts; "" for none.
        plain: Text of the token there without drafts; "" for none.
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
