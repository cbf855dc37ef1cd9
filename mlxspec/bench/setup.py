"""The setup of a run: model, machine, libraries and settings; all figures depend on it."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mlxspec import __version__
from mlxspec.bench.arms import Task
from mlxspec.budget import CostCurve
from mlxspec.device import backend
from mlxspec.drafting.registry import DrafterContext
from mlxspec.params import Options

Setup = Mapping[str, Any]
"""Values by name, ready for JSON; only figures of equal setups are comparable."""

_DRAFTING = ("branching", "depth", "exit_threshold", "chain_rule")
_FILTERS = ("top_p", "min_p")
_OTHERS = ("mlx-lm", "mlx-dspark")


def setup_of(context: DrafterContext, task: Task, baseline: str) -> Setup:
    """Return the setup of a run in which all arms are compared with the baseline."""
    facts = backend.facts()
    versions = {"mlxspec": __version__, "mlx": facts.mlx, "python": facts.python}
    return {
        "model": context.loaded.name,
        "weights": context.loaded.weights,
        "device": f"{facts.device}, {facts.cores} cores, {facts.memory_gb:.0f} GB",
        "system": facts.system,
        "blas": facts.blas,
        "versions": versions | {name: found for name in _OTHERS if (found := version_of(name))},
        "max_tokens": task.max_tokens,
        "num_draft_tokens": task.num_draft_tokens,
        "lookahead": context.lookahead,
        **_drafting(context),
        **_filters(task),
        "seed": task.seed,
        "baseline": baseline,
    }


def _drafting(context: DrafterContext) -> dict[str, Any]:
    """Return the settings of the drafts that the user chose, without defaults."""
    rule = context.engine.chain_rule
    values = {
        "branching": context.limits.branching,
        "depth": context.limits.depth,
        "exit_threshold": context.exit_threshold,
        "chain_rule": None if rule == Options.chain_rule else rule,
    }
    return {name: values[name] for name in _DRAFTING if values[name] is not None}


def _filters(task: Task) -> dict[str, Any]:
    """Return the filters that the user chose, without those that keep all tokens."""
    neutral = Task()
    values = {name: getattr(task, name) for name in _FILTERS}
    return {name: value for name, value in values.items() if value != getattr(neutral, name)}


def setup_lines(setup: Setup) -> list[str]:
    """Return a setup as lines of a name and a value."""
    versions = ", ".join(f"{name} {number}" for name, number in setup["versions"].items())
    settings = (
        f"{setup['max_tokens']} tokens at most, {setup['num_draft_tokens']} draft nodes a round, "
        f"draft models {setup['lookahead']}"
    )
    chosen = (name for name in (*_DRAFTING, *_FILTERS) if name in setup)
    asked = (f"{name.replace('_', ' ')} {setup[name]}" for name in chosen)
    settings = ", ".join((settings, *asked))
    rows = {name: setup[name] for name in ("model", "weights", "device", "system", "blas")}
    rows |= {"versions": versions, "settings": settings}
    return [f"{name:<10}{value}" for name, value in rows.items() if value]


def cost_line(cost: CostCurve) -> str:
    """Return a line with the cost of each width, relative to one row."""
    pairs = zip(cost.ms, cost.ratios, strict=True)
    ratios = "  ".join(f"{width}: {ratio:.2f}" for width, ratio in pairs)
    return f"{'T(n)/T(1)':<10}{ratios}   (T(1) = {cost.ms[1]:.1f} ms)"


def version_of(package: str) -> str:
    """Return the version of a package; "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
