"""From rows to figures, and from figures to tables for people and a JSON document for programs.

The speed of a conversation is tokens/s after the first tokens, so that the prompt does not count
for any arm. Ratios of two arms are computed within one conversation. The figure of a category is
the median of its ratios; the mean is the mean over categories.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median, quantiles
from typing import Any

from mlxspec.bench.prompts import APART
from mlxspec.bench.run import Row, Setup, row_dict, setup_lines
from mlxspec.budget import CostCurve
from mlxspec.measure.cost import cost_table, estimated_tps
from mlxspec.measure.tables import as_json, cell, table
from mlxspec.measure.trial import Trial
from mlxspec.trace.stats import FORCED, GenerationStats, total

_FIELDS = [field.name for field in fields(GenerationStats) if field.name[0] != "_"]
_ARMS_IN_A_TABLE = 6


@dataclass(frozen=True)
class Spread:
    """Ratios to the baseline in one category, with `low` and `high` as quartiles."""

    median: float
    low: float
    high: float
    count: int
    of_means: float  # the mean speed over the baseline's mean speed, as in Spec-Bench


@dataclass(frozen=True)
class ArmFigures:
    """The figures of an arm at one temperature."""

    arm: str
    categories: dict[str, Spread]
    mean: float | None  # of the medians, without `copy`; None if nothing could be compared
    replies: int
    tokens: int
    tokens_per_s: float | None
    ttft_s: float  # a median
    tokens_per_forward: float
    rows_per_token: float | None
    own_memory_gb: float  # of the largest reply, and so the peak
    peak_memory_gb: float
    rounds: dict[str, Any]  # empty for other projects


def arm_figures(rows: Sequence[Row], arm: str, baseline: str) -> ArmFigures:
    """Return the figures of an arm with at least one row; `rows` are all rows of a temperature."""
    mine = [row for row in rows if row.arm == arm]
    replies = [reply for row in mine for reply in row.replies]
    tokens = sum(len(reply.tokens) for reply in replies)
    num_rows = [reply.rows for reply in replies if reply.rows is not None]
    standard = {row.case: row for row in rows if row.arm == baseline}
    pairs: dict[str, list[tuple[float, float]]] = {}
    for row in mine:
        other = standard.get(row.case)
        speeds = _speed(row.replies), _speed(other.replies) if other else None
        if speeds[0] is not None and speeds[1] is not None:
            pairs.setdefault(row.case.question.category, []).append((speeds[0], speeds[1]))
    categories = {name: _spread(found) for name, found in pairs.items()}
    medians = [spread.median for name, spread in categories.items() if name != APART]
    return ArmFigures(
        arm=arm,
        categories=categories,
        mean=fmean(medians) if medians else None,
        replies=len(replies),
        tokens=tokens,
        tokens_per_s=_speed(replies),
        ttft_s=median(reply.ttft_s for reply in replies),
        tokens_per_forward=tokens / sum(reply.forwards for reply in replies),
        rows_per_token=sum(num_rows) / tokens if len(num_rows) == len(replies) else None,
        own_memory_gb=max(reply.own_memory_gb for reply in replies),
        peak_memory_gb=max(reply.peak_memory_gb for reply in replies),
        rounds=_rounds(replies),
    )


def _spread(pairs: Sequence[tuple[float, float]]) -> Spread:
    ratios = [mine / other for mine, other in pairs]
    quartiles = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    of_means = fmean(mine for mine, _ in pairs) / fmean(other for _, other in pairs)
    return Spread(quartiles[1], quartiles[0], quartiles[2], len(ratios), of_means)


def _speed(replies: Sequence[Trial]) -> float | None:
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


# ---- the report --------------------------------------------------------------------------------


@dataclass(frozen=True)
class BenchResult:
    """A run, finished or interrupted; `notes` tell which arms and conversations were left out."""

    setup: Setup
    rows: Sequence[Row]
    arms: Sequence[str]
    baseline: str
    cost: CostCurve | None
    notes: Sequence[str] = ()
    is_partial: bool = False

    @property
    def has_real_difference(self) -> bool:
        """Whether a greedy reply differs from the baseline's and rounding does not explain it."""
        found = [difference for row in self.rows for difference in row.differences]
        return any(difference and not difference.is_near_tie for difference in found)

    def figures(self) -> dict[float, list[ArmFigures]]:
        found: dict[float, list[ArmFigures]] = {}
        for temp in dict.fromkeys(row.case.temp for row in self.rows):
            rows = [row for row in self.rows if row.case.temp == temp]
            arms = [arm for arm in self.arms if any(row.arm == arm for row in rows)]
            found[temp] = [arm_figures(rows, arm, self.baseline) for arm in arms]
        return found


def text(result: BenchResult) -> str:
    """Return the report: the setup, a table for each temperature, the agreement of the arms."""
    parts = ["\n".join(setup_lines(result.setup))]
    if result.cost:
        parts.append(f"one forward, by rows verified:\n{cost_table(result.cost)}")
    for temp, columns in result.figures().items():
        kind = "greedy" if temp == 0 else f"temperature {temp:g}"
        parts.append(
            f"{kind}: tokens/s over those of {result.baseline}, prompt by prompt "
            "(median, and quartiles)"
        )
        for start in range(0, len(columns), _ARMS_IN_A_TABLE):
            parts.append(_table(columns[start : start + _ARMS_IN_A_TABLE], result.cost))
        parts.append(_depths(columns))
    parts.append("\n".join(_agreement(result)))
    # after a failure of its drafter, the rest of a reply was decoded plainly
    faults = [(row.arm, reply.fault) for row in result.rows for reply in row.replies if reply.fault]
    parts += [
        f"! {arm} failed in {faults.count((arm, fault))} replies: {fault}"
        for arm, fault in dict.fromkeys(faults)
    ]
    parts += [f"! {note}" for note in result.notes]
    if result.is_partial:
        parts.append(f"! interrupted: these are the {len(result.rows)} conversations so far")
    return "\n\n".join(part for part in parts if part)


def document(result: BenchResult) -> dict[str, Any]:
    """Return all results, ready for JSON; token ids are replaced by their number."""
    rows = [row_dict(row) for row in result.rows]
    for reply in (reply for row in rows for reply in row["replies"]):
        reply["tokens"] = len(reply["tokens"])
    cost = result.cost
    found: dict[str, Any] = as_json(
        {
            "setup": result.setup,
            "baseline": result.baseline,
            "forward_cost": cost and {"widths": list(cost.ms), "ms": list(cost.ms.values())},
            "is_partial": result.is_partial,
            "has_real_difference": result.has_real_difference,
            "notes": result.notes,
            "results": result.figures(),
            "rows": rows,
        }
    )
    return found


def _table(columns: Sequence[ArmFigures], cost: CostCurve | None) -> str:
    names = list(dict.fromkeys(name for figures in columns for name in figures.categories))
    means = ["mean of these", *(cell(figures.mean) for figures in columns)]
    rows = [[name, *(_cell(figures.categories.get(name)) for figures in columns)] for name in names]
    rows.insert(names.index(APART) if APART in names else len(names), means)
    rows.insert(0, ["", *(figures.arm for figures in columns)])
    rows += [["", *("" for _ in columns)]]
    rows += [[name, *map(show, columns)] for name, show in _ROWS.items()]
    for name, figure in _SELDOM.items():
        values = [figures.rounds.get(figure, 0) for figures in columns]
        rows += [[name, *map(cell, values)]] if any(values) else []
    if cost is not None:
        each = [(one.tokens_per_forward, one.rows_per_token) for one in columns]
        estimates = (n if n is None else estimated_tps(cost, t, n * t) for t, n in each)
        rows.append(["estimate, tokens/s", *(cell(value, 1) for value in estimates)])
    return table(rows)


def _cell(spread: Spread | None) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})" if spread else "-"


def _of_rounds(name: str, form: str = "{:.2f}") -> Callable[[ArmFigures], str]:
    return lambda figures: form.format(figures.rounds[name]) if figures.rounds else "-"


_ROWS: dict[str, Callable[[ArmFigures], str]] = {
    "tokens/forward": lambda figures: f"{figures.tokens_per_forward:.2f}",
    "rows/token": lambda figures: cell(figures.rows_per_token),
    "waits/forward": _of_rounds("syncs_per_forward"),
    "tokens/s": lambda figures: cell(figures.tokens_per_s, 1),
    "first token, s": lambda figures: f"{figures.ttft_s:.2f}",
    "drafting": _of_rounds("draft_share", "{:.0%}"),
    "target": _of_rounds("target_share", "{:.0%}"),
    "host": _of_rounds("host_share", "{:.0%}"),
    "memory, GB": lambda figures: f"{figures.own_memory_gb:.3f}",
}

_SELDOM = {
    "forced, share": "forced_share",
    "predicted, accepted": "prediction_accepted",
    "predicted, rejected": "prediction_rejected",
}
"""Rows of replies under a grammar or with a prediction, and their names among `rounds`."""


def _depths(columns: Sequence[ArmFigures]) -> str:
    rows = []
    for figures in columns:
        if kept := figures.rounds.get("acceptance_by_depth"):
            given = figures.rounds["acceptance_given_reached"]
            rows += [[figures.arm, *map(cell, kept)], ["  given the last", *map(cell, given)]]
    width = max(map(len, rows), default=0)
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    head = "rounds that kept a draft token at depth 1, 2, ...\n"
    return head + table(padded) if rows else ""


def _agreement(result: BenchResult) -> list[str]:
    lines = []
    for arm in result.arms:
        greedy = [row for row in result.rows if row.arm == arm and row.case.temp == 0]
        if not greedy or arm == result.baseline:
            continue
        parted = [
            f"  {row.case.question.category} {row.case.question.id}, turn {turn}: "
            f"{difference.describe()}"
            for row in greedy
            for turn, difference in enumerate(row.differences, 1)
            if difference
        ]
        total = sum(len(row.replies) for row in greedy)
        same = f"{total - len(parted)} of {total} greedy replies"
        lines += [f"{arm}: {same} are those of {result.baseline}", *parted]
    return lines
