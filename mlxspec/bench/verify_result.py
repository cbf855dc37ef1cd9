"""The results of `mlxspec verify`: the verdict, and the tables that show it.

The size of a near-tie is measured, not assumed: if nothing drifts, no difference is excused.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from mlxspec.bench.run import Setup, setup_lines
from mlxspec.bench.sampled import ERROR_RATE, LENGTH, SAMPLING, DistributionCheck
from mlxspec.measure.drift import Drift
from mlxspec.measure.tables import table
from mlxspec.trace.difference import NEAR_TIE_DRIFTS, Difference, Proof

Conclusion = Literal["bit-identical", "near-ties", "not lossless"]
"""Whether speculation is lossless here; near-ties are differences that rounding explains."""


@dataclass(frozen=True)
class Parting:
    """A reply that differs from the plain one; `question` is the name of its case."""

    DERIVED: ClassVar = ("is_near_tie",)

    question: str
    proof: Proof

    @property
    def difference(self) -> Difference:
        assert self.proof.difference is not None
        return self.proof.difference

    @property
    def is_near_tie(self) -> bool:
        return self.difference.is_near_tie


@dataclass(frozen=True)
class Agreement:
    """The comparison of one drafter's replies with plain decoding."""

    DERIVED: ClassVar = ("num_same",)

    drafter: str
    num_replies: int
    num_tokens: int
    drafted: int  # draft nodes
    accepted: int
    partings: tuple[Parting, ...]
    faults: tuple[str, ...] = ()  # an error of the drafter for each reply that had one

    @property
    def num_same(self) -> int:
        return self.num_replies - len(self.partings)

    @property
    def mistakes(self) -> list[Difference]:
        """The differences that rounding does not explain."""
        return [each.difference for each in self.partings if not each.is_near_tie]


@dataclass(frozen=True)
class CacheCheck:
    """The results with one kind of cache; `agreements` has one entry per drafter."""

    cache: str
    drift: Drift
    agreements: tuple[Agreement, ...]


@dataclass(frozen=True)
class CheckResult:
    """The results of a check; `notes` tell which caches and questions were left out."""

    _SHOWN: ClassVar = ("verdict", "verdict_text", "is_lossless", "least_p_value")
    DERIVED: ClassVar = (*_SHOWN, "is_off", "faults")

    setup: Setup
    num_nodes: tuple[int, ...]  # draft nodes per round, used in turn
    caches: tuple[CacheCheck, ...]
    distributions: tuple[DistributionCheck, ...]  # with the first cache, plain decoding first
    notes: tuple[str, ...]
    grammar: str = ""  # the kind of that of all replies and samples

    @property
    def is_lossless(self) -> bool:
        """Whether rounding explains every difference."""
        return self.verdict != "not lossless"

    @property
    def least_p_value(self) -> float:
        """The p-value below which samples have another distribution."""
        return ERROR_RATE / len(self.distributions)

    @property
    def is_off(self) -> list[str]:
        """The drafters whose samples have another distribution than the target's."""
        return [each.drafter for each in self._off]

    @property
    def verdict(self) -> Conclusion:
        if self._reasons:
            return "not lossless"
        is_zero = all(cache.drift.is_zero for cache in self.caches)
        return "bit-identical" if is_zero and not self._partings else "near-ties"

    @property
    def verdict_text(self) -> str:
        if self._reasons:
            return f"not lossless: {'; '.join(self._reasons)}"
        total = sum(found.num_replies for _, found in self._agreements)
        sampled = "sampled ones have the model's distribution"
        if self.verdict == "bit-identical":
            return (
                f"bit-identical: all {total} greedy replies are those of plain decoding, no logit "
                f"depends on the other rows of its forward; {sampled}"
            )
        if self._partings:
            most = max(parting.difference.gap or 0.0 for parting in self._partings)
            met = f": {len(self._partings)} of {total} greedy replies differ at one"
        else:
            most = max(cache.drift.near_tie for cache in self.caches)
            met = f", where rounding could decide: none of {total} greedy replies met one"
        return f"identical up to near-ties of at most {most:.2g} (logits){met}; {sampled}"

    @property
    def faults(self) -> list[str]:
        """Notes on drafters that failed or drafted nothing: plain replies check nothing."""
        notes = []
        for cache, found in self._agreements:
            name, where = found.drafter, f"replies, cache {cache.cache}"
            for fault in dict.fromkeys(found.faults):
                notes.append(f"{name} failed in {found.faults.count(fault)} {where}: {fault}")
            notes += [] if found.drafted else [f"{name} drafted nothing in its {where}"]
        for check in self.distributions[1:]:
            if check.num_faults:
                notes.append(f"{check.drafter} failed in {check.num_faults} samples")
            if not check.drafted:
                only = "only plain decoding was checked"
                notes.append(f"{check.drafter} drafted nothing in its samples: {only}")
        return notes

    @property
    def _agreements(self) -> list[tuple[CacheCheck, Agreement]]:
        return [(cache, found) for cache in self.caches for found in cache.agreements]

    @property
    def _off(self) -> list[DistributionCheck]:
        return [each for each in self.distributions if each.fit.p_value < self.least_p_value]

    @property
    def _partings(self) -> list[Parting]:
        return [parting for _, found in self._agreements for parting in found.partings]

    @cached_property
    def _reasons(self) -> list[str]:
        reasons = []
        for cache, found in self._agreements:
            gaps = [each.gap for each in found.mistakes if each.gap is not None]
            where = "where one of the two replies ends"
            if gaps:
                where = f"at gaps of up to {max(gaps):.2g} (logits) that no rounding explains"
            if found.mistakes:
                reasons.append(
                    f"{found.drafter} differs from plain decoding in {len(found.mistakes)} of "
                    f"{found.num_replies} greedy replies, cache {cache.cache}, {where}"
                )
        return reasons + [
            f"{check.drafter} samples from another distribution than the model's (p = "
            f"{check.fit.p_value:.1g}, at least {self.least_p_value:.1g} is allowed)"
            for check in self._off
        ]


def text(result: CheckResult) -> str:
    """Return the report: the setup, the results and the verdict."""
    caches = (part for cache in result.caches for part in (_drift(cache), _replies(cache, result)))
    notes = (f"! {note}" for note in (*result.faults, *result.notes))
    setup = "\n".join(setup_lines(result.setup))
    return "\n\n".join([setup, *caches, _distributions(result), *notes, result.verdict_text])


def _drift(cache: CacheCheck) -> str:
    rows = [["n", "largest drift", "best token flips"]]
    for width in cache.drift.widths:
        largest = "bit-identical" if width.largest == 0 else f"{width.largest:.1e}"
        rows.append([str(width.width), largest, f"{width.num_flips} of {width.num_rows} rows"])
    near_tie = "rounding changes nothing, so no gap is a near-tie"
    if cache.drift.near_tie:
        near_tie = (
            f"a near-tie is a gap of at most {cache.drift.near_tie:.1e}, {NEAR_TIE_DRIFTS} times "
            "what rounding does to rows that are read in one forward"
        )
    return (
        f"cache {cache.cache}: a row's logits in a forward of n rows, against the row alone\n"
        f"{table(rows)}\nsmallest top-2 gap {cache.drift.smallest_gap:.2g}; {near_tie}"
    )


def _replies(cache: CacheCheck, result: CheckResult) -> str:
    nodes = ", ".join(map(str, result.num_nodes))
    rows = [["", "the same", "tokens", "drafted", "accepted"]]
    for found in cache.agreements:
        counts = (found.num_tokens, found.drafted, found.accepted)
        rows.append([found.drafter, f"{found.num_same} of {found.num_replies}", *map(str, counts)])
    partings = [
        f"  {found.drafter}, {each.question}: {each.proof.describe()}"
        for found in cache.agreements
        for each in found.partings
    ]
    under = f" under {result.grammar}" if result.grammar else ""
    heading = (
        f"cache {cache.cache}: greedy replies{under}, compared with plain decoding "
        f"(drafts of {nodes} nodes, in turn)"
    )
    return "\n".join([heading, table(rows), *partings])


def _distributions(result: CheckResult) -> str:
    checks = result.distributions
    rows = [["", "chi-square", "freedom", "p", "drafted", "accepted", ""]]
    for check in checks:
        fit = check.fit
        cells = [f"{fit.chi_square:.1f}", str(fit.freedom), f"{fit.p_value:.2g}"]
        wrong = "WRONG" if check.drafter in result.is_off else ""
        rows.append([check.drafter, *cells, str(check.drafted), str(check.accepted), wrong])
    tokens = f"chosen tokens under {result.grammar}" if result.grammar else "tokens"
    return (
        f"cache {result.caches[0].cache}: {LENGTH} {tokens} at temperature "
        f"{SAMPLING.temperature:g}, {checks[0].fit.num_draws} samples each against the exact "
        f"distribution\n{table(rows)}\n"
        f"a p below {result.least_p_value:.1g} means another distribution"
    )
