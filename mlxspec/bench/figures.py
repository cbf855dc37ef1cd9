"""Computes figures from rows: the speed and acceptance of each arm, compared with the baseline.

Definitions. The speed of a conversation is tokens/s after the first tokens, so that the prompt
does not count for any arm. Ratios of two arms are computed within one conversation. The figure of
a category is the median of its ratios; the mean is the mean over categories. Plain decoding has 1
token per target forward. Acceptance at a depth is counted per round, and also relative to the
rounds that reached the depth before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median, quantiles
from typing import Any

from mlxspec.bench.prompts import APART
from mlxspec.bench.run import Row
from mlxspec.measure.trial import Trial
from mlxspec.trace.stats import FORCED, GenerationStats, total

_FIELDS = [field.name for field in fields(GenerationStats) if field.name[0] != "_"]


@dataclass(frozen=True)
class Spread:
    """Ratios to the baseline in one category, with `low` and `high` as quartiles.

    `of_means` is the mean speed divided by the baseline's mean speed, as in Spec-Bench.
    """

    median: float
    low: float
    high: float
    count: int
    of_means: float


@dataclass(frozen=True)
class ArmFigures:
    """The figures of an arm at one temperature.

    `categories` are ratios by category, and `mean` is the mean of their medians, without `copy`;
    None if nothing could be compared. `ttft_s` is a median; memory is the largest of a reply.
    `rounds` are figures of drafting; empty for other projects.
    """

    arm: str
    categories: dict[str, Spread]
    mean: float | None
    replies: int
    tokens: int
    tokens_per_s: float | None
    ttft_s: float
    tokens_per_forward: float
    rows_per_token: float | None
    own_memory_gb: float
    peak_memory_gb: float
    rounds: dict[str, Any]


def arm_figures(rows: Sequence[Row], arm: str, baseline: str) -> ArmFigures:
    """Return the figures of an arm with at least one row; `rows` are all rows of a temperature."""
    mine = [row for row in rows if row.arm == arm]
    replies = [reply for row in mine for reply in row.replies]
    tokens = sum(len(reply.tokens) for reply in replies)
    num_rows = [reply.rows for reply in replies if reply.rows is not None]
    categories = _categories(mine, {row.case: row for row in rows if row.arm == baseline})
    medians = [spread.median for name, spread in categories.items() if name != APART]
    return ArmFigures(
        arm=arm,
        categories=categories,
        mean=fmean(medians) if medians else None,
        replies=len(replies),
        tokens=tokens,
        tokens_per_s=speed(replies),
        ttft_s=median(reply.ttft_s for reply in replies),
        tokens_per_forward=tokens / sum(reply.forwards for reply in replies),
        rows_per_token=sum(num_rows) / tokens if len(num_rows) == len(replies) else None,
        own_memory_gb=max(reply.own_memory_gb for reply in replies),
        peak_memory_gb=max(reply.peak_memory_gb for reply in replies),
        rounds=_rounds(replies),
    )


def _categories(mine: Sequence[Row], standard: dict[Any, Row]) -> dict[str, Spread]:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for row in mine:
        other = standard.get(row.case)
        speeds = speed(row.replies), speed(other.replies) if other else None
        if speeds[0] is not None and speeds[1] is not None:
            pairs.setdefault(row.case.question.category, []).append((speeds[0], speeds[1]))
    return {name: _spread(found) for name, found in pairs.items()}


def _spread(pairs: Sequence[tuple[float, float]]) -> Spread:
    ratios = [mine / other for mine, other in pairs]
    quartiles = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    of_means = fmean(mine for mine, _ in pairs) / fmean(other for _, other in pairs)
    return Spread(quartiles[1], quartiles[0], quartiles[2], len(ratios), of_means)


def speed(replies: Sequence[Trial]) -> float | None:
    """Return tokens/s after the first tokens; None if no tokens came after them."""
    tokens = sum(reply.later_tokens for reply in replies)
    seconds = sum(reply.seconds for reply in replies)
    return tokens / seconds if tokens and seconds > 0 else None


def _rounds(replies: Sequence[Trial]) -> dict[str, Any]:
    """Return the figures of an engine's rounds: acceptance by depth, shares of time, waits."""
    own = [reply.stats for reply in replies if reply.stats]
    if not own:
        return {}
    whole = total(
        GenerationStats(**{name: one[name] for name in _FIELDS if name in one}) for one in own
    )
    decode_s = whole.total_s - whole.prefill_s
    forwards = max(whole.target_forwards, 1)
    return {
        "rounds": whole.rounds,
        "drafted_share": whole.rounds / forwards,
        "mean_acceptance_length": whole.mean_acceptance_length,
        "acceptance_by_depth": whole.acceptance_by_depth,
        "acceptance_given_reached": whole.acceptance_given_reached,
        "drafted_at_depth": [count / whole.rounds for count in whole.drafted_at_depth],
        "draft_share": whole.draft_s / decode_s,
        "target_share": whole.target_s / decode_s,
        "host_share": (decode_s - whole.draft_s - whole.target_s) / decode_s,
        "syncs_per_forward": sum(one["host_syncs"] for one in own) / forwards,
        "forced_share": whole.kinds.get(FORCED, 0) / max(whole.generated_tokens, 1),
        "prediction_accepted": whole.accepted_prediction_tokens,
        "prediction_rejected": whole.rejected_prediction_tokens,
    }
