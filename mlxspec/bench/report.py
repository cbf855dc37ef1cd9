"""The figures of a run as tables for people, and as a JSON document for programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlxspec.bench.figures import ArmFigures, Spread, arm_figures
from mlxspec.bench.prompts import APART
from mlxspec.bench.run import Row, row_dict
from mlxspec.bench.setup import Setup, cost_line, setup_lines
from mlxspec.budget import CostCurve
from mlxspec.measure.cost import estimated_tps
from mlxspec.measure.tables import as_json, cell, table

_ARMS_IN_A_TABLE = 6


@dataclass(frozen=True)
class BenchResult:
    """A run, finished or not; `is_partial` means that it was interrupted.

    `arms` are in the order of the user; the others are compared with `baseline`. `notes` tell which
    arms and conversations were left out.
    """

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

    def figures(self, temp: float) -> list[ArmFigures]:
        """Return the figures of all arms that have a row at a temperature."""
        rows = [row for row in self.rows if row.case.temp == temp]
        there = {row.arm for row in rows}
        return [arm_figures(rows, arm, self.baseline) for arm in self.arms if arm in there]

    @property
    def temps(self) -> list[float]:
        """The temperatures, in the order of the run."""
        return list(dict.fromkeys(row.case.temp for row in self.rows))


def text(result: BenchResult) -> str:
    """Return the report: the setup, a table for each temperature, the agreement of the arms."""
    heading = setup_lines(result.setup) + ([cost_line(result.cost)] if result.cost else [])
    parts = ["\n".join(heading)]
    for temp in result.temps:
        kind = "greedy" if temp == 0 else f"temperature {temp:g}"
        parts.append(
            f"{kind}: tokens/s over those of {result.baseline}, prompt by prompt "
            "(median, and quartiles)"
        )
        columns = result.figures(temp)
        for start in range(0, len(columns), _ARMS_IN_A_TABLE):
            parts.append(_table(columns[start : start + _ARMS_IN_A_TABLE], result.cost))
        parts.append(_depths(columns))
    parts.append(_agreement(result))
    parts += [f"! {note}" for note in (*_faults(result.rows), *result.notes)]
    if result.is_partial:
        parts.append(f"! interrupted: these are the {len(result.rows)} conversations so far")
    return "\n\n".join(part for part in parts if part)


def document(result: BenchResult) -> dict[str, Any]:
    """Return all results, ready for JSON; token ids are replaced by their number."""
    rows = [row_dict(row) for row in result.rows]
    for reply in (reply for row in rows for reply in row["replies"]):
        reply["tokens"] = len(reply["tokens"])
    cost = result.cost
    found = {
        "setup": result.setup,
        "baseline": result.baseline,
        "forward_cost": cost and {"widths": list(cost.ms), "ms": list(cost.ms.values())},
        "is_partial": result.is_partial,
        "has_real_difference": result.has_real_difference,
        "notes": result.notes,
        "results": {str(temp): result.figures(temp) for temp in result.temps},
        "rows": rows,
    }
    return {name: as_json(value) for name, value in found.items()}


def _table(columns: Sequence[ArmFigures], cost: CostCurve | None) -> str:
    names = list(dict.fromkeys(name for figures in columns for name in figures.categories))
    means = ["mean of these", *(cell(figures.mean) for figures in columns)]
    rows = [[name, *(_cell(figures.categories.get(name)) for figures in columns)] for name in names]
    place = names.index(APART) if APART in names else len(names)
    rows.insert(place, means)
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
        kept = figures.rounds.get("acceptance_by_depth")
        if kept:
            given = figures.rounds["acceptance_given_reached"]
            rows += [[figures.arm, *map(cell, kept)], ["  given the last", *map(cell, given)]]
    width = max(map(len, rows), default=0)
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    head = "rounds that kept a draft token at depth 1, 2, ...\n"
    return head + table(padded) if rows else ""


def _agreement(result: BenchResult) -> str:
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
    return "\n".join(lines)


def _faults(rows: Sequence[Row]) -> list[str]:
    """Return notes on drafters that failed: the rest of such a reply was decoded plainly."""
    faults = [(row.arm, reply.fault) for row in rows for reply in row.replies if reply.fault]
    return [
        f"{arm} failed in {faults.count((arm, fault))} replies: {fault}"
        for arm, fault in dict.fromkeys(faults)
    ]


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"
