"""The figures of a run as tables for people, and as a JSON document for programs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mlxspec.bench.figures import ArmFigures, Spread, arm_figures
from mlxspec.bench.keep import row_dict
from mlxspec.bench.machine import Setup, cost_line, setup_lines
from mlxspec.bench.prompts import APART
from mlxspec.bench.run import Row
from mlxspec.budget import CostCurve
from mlxspec.measure.estimate import estimated_tps

_FIRST, _CELL = 18, 17


@dataclass(frozen=True)
class BenchResult:
    """A run, finished or not; `is_partial` means that it was interrupted.

    Attributes:
        arms: Names of the arms, in the order of the user.
        baseline: Name of the arm that the others are compared with.
        cost: The cost curve, or None if it was not measured.
        notes: Messages on arms and conversations that were left out.
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
    parts = ["\n".join(_heading(result))]
    for temp in result.temps:
        parts.append(_table(result, temp))
        parts.append(_depths(result.figures(temp)))
    parts.append(_agreement(result))
    parts += [f"! {note}" for note in (*_faults(result.rows), *result.notes)]
    if result.is_partial:
        parts.append(f"! interrupted: these are the {len(result.rows)} conversations so far")
    return "\n\n".join(part for part in parts if part)


def document(result: BenchResult) -> dict[str, Any]:
    """Return all results, ready for JSON; token ids are replaced by their number."""
    results = {
        str(temp): [_without_none(asdict(figures)) for figures in result.figures(temp)]
        for temp in result.temps
    }
    return {
        "setup": dict(result.setup),
        "baseline": result.baseline,
        "forward_cost": _curve_dict(result.cost) if result.cost else None,
        "is_partial": result.is_partial,
        "has_real_difference": result.has_real_difference,
        "notes": list(result.notes),
        "results": results,
        "rows": [_row_dict(row) for row in result.rows],
    }


def _curve_dict(curve: CostCurve) -> dict[str, Any]:
    return {"widths": list(curve.ms), "ms": list(curve.ms.values())}


def _heading(result: BenchResult) -> list[str]:
    lines = setup_lines(result.setup)
    return [*lines, cost_line(result.cost)] if result.cost else lines


def _table(result: BenchResult, temp: float) -> str:
    columns = result.figures(temp)
    kind = "greedy" if temp == 0 else f"temperature {temp:g}"
    lines = [
        f"{kind}: tokens/s over those of {result.baseline}, prompt by prompt "
        "(median, and quartiles)",
        _line("", [figures.arm for figures in columns]),
    ]
    categories = list(dict.fromkeys(name for figures in columns for name in figures.categories))
    for name in categories:
        if name != APART:
            lines.append(_line(name, [_cell(figures.categories.get(name)) for figures in columns]))
    lines.append(_line("mean of these", [_number(figures.mean) for figures in columns]))
    if APART in categories:
        lines.append(_line(APART, [_cell(figures.categories.get(APART)) for figures in columns]))
    lines += [
        "",
        *(_line(name, [show(figures) for figures in columns]) for name, show in _ROWS.items()),
    ]
    if (cost := result.cost) is not None:
        cells = [_number(_estimate(cost, figures), 1) for figures in columns]
        lines.append(_line("estimate, tokens/s", cells))
    return "\n".join(line.rstrip() for line in lines)


def _estimate(cost: CostCurve, figures: ArmFigures) -> float | None:
    """Return the tokens/s that the cost curve promises for an arm's tokens and rows per forward."""
    if figures.rows_per_token is None:
        return None
    rows = figures.rows_per_token * figures.tokens_per_forward
    return estimated_tps(cost, figures.tokens_per_forward, rows)


def _of_rounds(name: str, form: str = "{:.2f}") -> Callable[[ArmFigures], str]:
    return lambda figures: form.format(figures.rounds[name]) if figures.rounds else "-"


_ROWS: dict[str, Callable[[ArmFigures], str]] = {
    "tokens/forward": lambda figures: f"{figures.tokens_per_forward:.2f}",
    "rows/token": lambda figures: _number(figures.rows_per_token),
    "waits/forward": _of_rounds("syncs_per_forward"),
    "tokens/s": lambda figures: _number(figures.tokens_per_s, 1),
    "first token, s": lambda figures: f"{figures.ttft_s:.2f}",
    "drafting": _of_rounds("draft_share", "{:.0%}"),
    "target": _of_rounds("target_share", "{:.0%}"),
    "host": _of_rounds("host_share", "{:.0%}"),
    "memory, GB": lambda figures: f"{figures.own_memory_gb:.3f}",
}


def _depths(columns: Sequence[ArmFigures]) -> str:
    lines = []
    for figures in columns:
        kept = figures.rounds.get("acceptance_by_depth")
        if kept:
            given = figures.rounds["acceptance_given_reached"]
            lines.append(f"{figures.arm:<{_FIRST}}{_shares(kept)}")
            lines.append(f"{'  given the last':<{_FIRST}}{_shares(given)}")
    return "\n".join(["rounds that kept a draft token at depth 1, 2, ...", *lines]) if lines else ""


def _shares(shares: Sequence[float]) -> str:
    return "".join(f"{share:>6.2f}" for share in shares)


def _agreement(result: BenchResult) -> str:
    lines = []
    for arm in result.arms:
        if arm == result.baseline:
            continue
        greedy = [row for row in result.rows if row.arm == arm and row.case.temp == 0]
        if greedy:
            lines += _agreement_of(arm, greedy, result.baseline)
    return "\n".join(lines)


def _agreement_of(arm: str, rows: Sequence[Row], baseline: str) -> list[str]:
    found = [
        (row, turn, difference)
        for row in rows
        for turn, difference in enumerate(row.differences)
        if difference
    ]
    total = sum(len(row.replies) for row in rows)
    lines = [f"{arm}: {total - len(found)} of {total} greedy replies are those of {baseline}"]
    for row, turn, difference in found:
        name = f"{row.case.question.category} {row.case.question.id}, turn {turn + 1}"
        lines.append(f"  {name}: {difference.describe()}")
    return lines


def _faults(rows: Sequence[Row]) -> list[str]:
    """Return notes on drafters that failed: the rest of such a reply was decoded plainly."""
    faults = [(row.arm, reply.fault) for row in rows for reply in row.replies if reply.fault]
    return [
        f"{arm} failed in {faults.count((arm, fault))} replies: {fault}"
        for arm, fault in dict.fromkeys(faults)
    ]


def _row_dict(row: Row) -> dict[str, Any]:
    content = row_dict(row)
    for reply in content["replies"]:
        reply["tokens"] = len(reply["tokens"])
    return content


def _without_none(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if value is not None}


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<{_FIRST}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
