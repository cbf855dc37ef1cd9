"""The result of the whole check, in one sentence.

Greedy replies must be the same as those of plain decoding, except at near-ties. Sampled replies
must have the target's distribution. The size of a near-tie is measured, not assumed (see
`trace/near_tie.py`): if nothing drifts, no difference is excused.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mlxspec.checking.run import CheckResult
from mlxspec.checking.sampled import error_rate

Kind = Literal["bit-identical", "near-ties", "not lossless"]


@dataclass(frozen=True)
class Verdict:
    """Whether speculation with this model is lossless on this machine; `text` is one sentence."""

    kind: Kind
    text: str

    @property
    def is_lossless(self) -> bool:
        """Whether rounding explains every difference."""
        return self.kind != "not lossless"


def verdict(result: CheckResult) -> Verdict:
    """Return the verdict on the results of a check."""
    reasons = [*_greedy_reasons(result), *_sampled_reasons(result)]
    if reasons:
        return Verdict("not lossless", f"not lossless: {'; '.join(reasons)}")
    agreements = [found for cache in result.caches for found in cache.agreements]
    num_replies = sum(found.num_replies for found in agreements)
    partings = [parting for found in agreements for parting in found.partings]
    sampled = "sampled ones have the model's distribution"
    if partings:
        most = max(parting.difference.gap or 0.0 for parting in partings)
        return Verdict(
            "near-ties",
            f"identical up to near-ties of at most {most:.2g} (logits): {len(partings)} of "
            f"{num_replies} greedy replies differ at one; {sampled}",
        )
    if all(cache.drift.is_zero for cache in result.caches):
        return Verdict(
            "bit-identical",
            f"bit-identical: all {num_replies} greedy replies are those of plain decoding, no "
            f"logit depends on the other rows of its forward; {sampled}",
        )
    most = max(cache.drift.near_tie for cache in result.caches)
    return Verdict(
        "near-ties",
        f"identical up to near-ties of at most {most:.2g} (logits), where rounding could decide: "
        f"none of {num_replies} greedy replies met one; {sampled}",
    )


def _greedy_reasons(result: CheckResult) -> Iterator[str]:
    for cache in result.caches:
        for found in cache.agreements:
            real = [parting for parting in found.partings if not parting.difference.is_near_tie]
            if real:
                gaps = [gap for parting in real if (gap := parting.difference.gap) is not None]
                yield (
                    f"{found.drafter} differs from plain decoding in {len(real)} of "
                    f"{found.num_replies} greedy replies, cache {cache.cache}, {_gap_words(gaps)}"
                )


def _gap_words(gaps: list[float]) -> str:
    if not gaps:
        return "where one of the two replies ends"
    return f"at gaps of up to {max(gaps):.2g} (logits) that no rounding explains"


def _sampled_reasons(result: CheckResult) -> Iterator[str]:
    checks = result.distributions
    for check in checks:
        if check.is_off(len(checks)):
            yield (
                f"{check.drafter} samples from another distribution than the model's (p = "
                f"{check.fit.p_value:.1g}, at least {error_rate(len(checks)):.1g} is allowed)"
            )
