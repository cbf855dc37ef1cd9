"""The setup of a run: model, machine, libraries and settings; all figures depend on it."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mlxspec import __version__
from mlxspec.budget import CostCurve
from mlxspec.device import backend
from mlxspec.drafting.registry import DrafterContext
from mlxspec.params import GenerationParams, Options, SamplingParams

Setup = Mapping[str, Any]
"""Values by name, ready for JSON; only figures of equal setups are comparable."""

_CHOSEN = ("branching", "depth", "exit_threshold", "chain_rule", "top_p", "min_p")
_OTHERS = ("mlx-lm", "mlx-dspark")


def setup_of(context: DrafterContext, params: GenerationParams, baseline: str) -> Setup:
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
        "max_tokens": params.max_tokens,
        "num_draft_tokens": params.num_draft_tokens,
        "lookahead": context.lookahead,
        **_chosen(context, params),
        "seed": params.seed,
        "baseline": baseline,
    }


def _chosen(context: DrafterContext, params: GenerationParams) -> dict[str, Any]:
    """Return the settings of drafts and the filters that the user chose, without defaults."""
    limits, rule, sampling = context.limits, context.engine.chain_rule, params.sampling
    drafting = (limits.branching, limits.depth, context.exit_threshold, rule)
    values = (*drafting, sampling.top_p, sampling.min_p)
    defaults = (None, None, None, Options.chain_rule, SamplingParams.top_p, SamplingParams.min_p)
    found = zip(_CHOSEN, values, defaults, strict=True)
    return {name: value for name, value, default in found if value != default}


def setup_lines(setup: Setup) -> list[str]:
    """Return a setup as lines of a name and a value."""
    versions = ", ".join(f"{name} {number}" for name, number in setup["versions"].items())
    chosen = [f"{name.replace('_', ' ')} {setup[name]}" for name in _CHOSEN if name in setup]
    settings = (
        f"{setup['max_tokens']} tokens at most",
        f"{setup['num_draft_tokens']} draft nodes a round",
        f"draft models {setup['lookahead']}",
        *chosen,
    )
    rows = {name: setup[name] for name in ("model", "weights", "device", "system", "blas")}
    rows |= {"versions": versions, "settings": ", ".join(settings)}
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
