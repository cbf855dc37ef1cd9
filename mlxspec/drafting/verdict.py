"""The stored verdict of `auto`: the drafter, the evidence, and the speeds of its replies since.

A verdict needs enough laps, little noise, and a lead that is larger than the noise. If one of these
is missing, the safe default drafts and the verdict is open: it is measured again later. A settled
verdict is opened again if its own replies are slower than the measured speed of another drafter.
The replies do not choose another drafter: the machine may have been busy, and only interleaved laps
distinguish that from a drafter that does not pay.

Drafts of a sampled reply are accepted less often than those of a greedy one. So if laps were greedy
and a reply is sampled, or the reverse, the reply is compared only with plain decoding, whose speed
is the same in both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from mlxspec.drafting.laps import MIN_LAPS, PLAIN, Evidence, leader_of

SAFE = "pool"
"""Drafts when no verdict is settled: it needs no training, and the budget lets it draft only if
that pays.
"""

RETRY_S = 6 * 3600.0
"""Seconds until an open verdict is measured again: a busy machine stays busy for a while."""

_WIDEST_SPREAD = 0.2
_TIE = 1.03  # a smaller lead does not count
_LIVE = 16  # latest replies that count
_FEWEST_LIVE = 5
_LIVE_MARGIN = 0.1  # replies of a chat differ from the prompts of the laps


@dataclass(frozen=True)
class DrafterVerdict:
    """The drafter that `auto` takes for a target on this machine, and why."""

    drafter: str
    is_settled: bool  # whether the laps decided; else the safe default drafts until the next ones
    why: str = ""  # what the laps lacked; "" if they decided
    ratios: Mapping[str, float] = field(default_factory=dict)  # median speed-up by drafter
    speeds: Mapping[str, float] = field(default_factory=dict)  # tokens/s by drafter
    spread: float = 0.0  # by how much equal speeds differed, as a share
    laps: int = 0  # number of laps
    at: float = 0.0  # time of the measurement, in seconds since 1970
    is_sampled: bool = False  # whether the laps were sampled; False if they were greedy
    live: tuple[float, ...] = ()  # speed-ups of the latest replies with this kind of sampling
    live_unlike: tuple[float, ...] = ()  # speed-ups of the other latest replies
    num_confirmed: int = 0  # how often laps confirmed the drafter after replies contradicted it

    def is_due(self, now: float) -> bool:
        """Return whether to measure again, at a time in seconds since 1970."""
        return not self.is_settled and not 0 <= now - self.at < RETRY_S

    @property
    def words(self) -> str:
        ranked = sorted(self.ratios, key=self.ratios.__getitem__, reverse=True)
        figures = ", ".join(f"{name} {self.ratios[name]:.2f}" for name in ranked)
        kind = "sampled" if self.is_sampled else "greedy"
        laps = f"{self.laps} {kind} lap{'s' if self.laps != 1 else ''}"
        how = f" (x the speed in {laps}: {figures}; spread {self.spread:.0%})" if figures else ""
        if self.is_settled and self.drafter in ranked[1:]:
            return f"no other is clearly faster on this machine{how}"
        if self.is_settled:
            return f"fastest of {len(ranked)} on this machine{how}"
        return f"the safe default until it is measured again: {self.why}{how}"

    def after_reply(self, speedup: float, *, is_sampled: bool) -> "DrafterVerdict":
        """Return the verdict after one more reply with its drafter; this can open the verdict."""
        most = _LIVE * 2**self.num_confirmed
        if is_sampled == self.is_sampled:
            new = replace(self, live=(*self.live, speedup)[-most:])
        else:
            new = replace(self, live_unlike=(*self.live_unlike, speedup)[-most:])
        if not self.is_settled or not new.contradiction:
            return new
        return replace(new, is_settled=False, why=new.contradiction, at=0.0)

    @property
    def contradiction(self) -> str:
        """How replies are slower than another drafter was measured to be; "" if they are not."""
        others = {name: ratio for name, ratio in self.ratios.items() if name != self.drafter}
        best, plain = max(others.values(), default=0.0), others.get(PLAIN, 0.0)
        # Each confirmation doubles the required number of replies, so measurements become rare.
        enough = _FEWEST_LIVE * 2**self.num_confirmed
        margin = 1 + max(self.spread, _LIVE_MARGIN)
        for live, ratio in ((self.live, best), (self.live_unlike, plain)):
            if len(live) >= enough and median(live) * margin < ratio:
                return (
                    f"its last {len(live)} replies ran at {median(live):.1f}x the speed, where "
                    f"{self.ratios.get(self.drafter, 1.0):.1f}x was measured"
                )
        return ""

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> "DrafterVerdict | None":
        """Return a stored verdict; None for anything else, such as one of an earlier version."""
        try:
            live = {name: tuple(kept[name]) for name in ("live", "live_unlike")}
            verdict = cls(**{**kept, **live})
            numbers = [*verdict.ratios.values(), *verdict.speeds.values(), *verdict.live]
            numbers += [*verdict.live_unlike, verdict.spread, verdict.at, verdict.laps]
            numbers.append(verdict.num_confirmed)
            is_whole = all(isinstance(n, int | float) and n >= 0 for n in numbers)
        except (TypeError, KeyError, AttributeError):
            return None
        return verdict if is_whole and isinstance(verdict.drafter, str) else None


def conclude(
    evidence: Evidence,
    safe: str,
    now: float,
    before: DrafterVerdict | None = None,
    *,
    is_sampled: bool = False,
    load: str = "",
) -> DrafterVerdict:
    """Return the verdict that laps allow; `before` is the one that was open until now.

    The safe default took part in all laps. `now` is in seconds since 1970. `load` is what keeps
    the machine busy, so that no lap counts; "" for nothing.
    """
    drafter, why = (safe, f"the machine is busy ({load})") if load else _decide(evidence, safe)
    told = Evidence() if load or evidence.spread > _WIDEST_SPREAD else evidence
    is_confirmed = before is not None and before.contradiction and before.drafter == drafter
    return DrafterVerdict(
        drafter=drafter,
        is_settled=not why,
        why=why,
        ratios=told.ratios,
        speeds=told.speeds,
        spread=round(evidence.spread, 4),
        laps=len(evidence.laps),
        at=now,
        is_sampled=is_sampled,
        num_confirmed=before.num_confirmed + 1 if before is not None and is_confirmed else 0,
    )


def _decide(evidence: Evidence, safe: str) -> tuple[str, str]:
    """Return the drafter, and what is missing for a settled verdict, or ""."""
    if len(evidence.laps) < MIN_LAPS:
        return safe, f"time for {len(evidence.laps)} of {MIN_LAPS} laps"
    if evidence.spread > _WIDEST_SPREAD:
        return safe, f"equal speeds differed by {evidence.spread:.0%}, the machine is busy"
    leader, ratios = leader_of(evidence), evidence.ratios
    enough, lead = max(_TIE, 1 + evidence.spread), evidence.lead(leader, safe)
    if leader == safe or max(lead, ratios[leader] / ratios[safe]) <= enough:
        return safe, ""
    if lead <= enough or not evidence.is_reliable(leader, safe):  # the machine was busy at times
        return safe, f"{leader} leads in some laps and {safe} in others"
    return leader, ""
