"""The proof: a greedy reply, decoded again without drafts and compared token by token."""

from dataclasses import dataclass

from mlxspec.trace.near_tie import is_near_tie, verdict_on


@dataclass(frozen=True)
class Difference:
    """The first position at which two greedy replies have different tokens.

    Attributes:
        index: Number of equal tokens before it.
        drafted: Text of the token that was written with drafts.
        plain: Text of the token that was written without drafts.
        drafted_logit: The target's logit of the first, from a forward without drafts, after bias
            and penalties.
        plain_logit: The same of the second.
        near_tie: Largest gap of these logits that rounding explains; 0 for none.
    """

    index: int
    drafted: str
    plain: str
    drafted_logit: float
    plain_logit: float
    near_tie: float = 0.0

    @property
    def gap(self) -> float:
        """The absolute difference of the two logits."""
        return abs(self.plain_logit - self.drafted_logit)

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding explains the different tokens."""
        return is_near_tie(self.gap, self.near_tie)


@dataclass(frozen=True)
class Proof:
    """How many tokens of a reply are those of plain decoding.

    Attributes:
        num_tokens: Number of tokens of the reply.
        num_same: Number of equal tokens, counted from the first token.
        difference: The first difference; None where the reply is identical to its end, or the
            comparison was stopped.
    """

    num_tokens: int
    num_same: int
    difference: Difference | None = None

    @property
    def is_identical(self) -> bool:
        return self.num_same == self.num_tokens

    def describe(self) -> str:
        """Return the result in one line."""
        if self.is_identical:
            return f"identical to plain decoding: {self.num_tokens} of {self.num_tokens} tokens"
        if self.difference is None:
            return f"the same for {self.num_same} tokens of {self.num_tokens}, then stopped"
        found = self.difference
        return (
            f"the same for {found.index} tokens of {self.num_tokens}, then {found.drafted!r} "
            f"(logit {found.drafted_logit:.4f}) with drafts and {found.plain!r} "
            f"({found.plain_logit:.4f}) without: a gap of {found.gap:.2g}, "
            f"{verdict_on(found.gap, found.near_tie)}"
        )
