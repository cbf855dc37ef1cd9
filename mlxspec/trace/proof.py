"""What came of decoding a reply once more without drafts."""

from dataclasses import dataclass

from mlxspec.trace.near_tie import is_near_tie, verdict_on


@dataclass(frozen=True)
class Difference:
    """Where two greedy replies part.

    Attributes:
        index: Tokens before it, which are the same.
        drafted: The token written with drafts, as text.
        plain: The token written without, as text.
        drafted_logit: The target's logit of the former, read without drafts, after bias and
            penalties.
        plain_logit: Of the latter.
        near_tie: Largest gap between the two that rounding explains; 0 for none.
    """

    index: int
    drafted: str
    plain: str
    drafted_logit: float
    plain_logit: float
    near_tie: float = 0.0

    @property
    def gap(self) -> float:
        """By how much the two logits differ."""
        return abs(self.plain_logit - self.drafted_logit)

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding explains that another token was taken."""
        return is_near_tie(self.gap, self.near_tie)


@dataclass(frozen=True)
class Proof:
    """How far a reply is the text of plain decoding.

    Attributes:
        num_tokens: Tokens of the reply.
        num_same: Tokens that are the same, from the first on.
        difference: What follows them; None where the reply is the same to its end, or the
            comparison was stopped.
    """

    num_tokens: int
    num_same: int
    difference: Difference | None = None

    @property
    def is_identical(self) -> bool:
        return self.num_same == self.num_tokens

    def describe(self) -> str:
        """Return the outcome in a line."""
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
