"""The setup of a run: model, machine, libraries and settings; all figures depend on it."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mlxspec import __version__
from mlxspec.device import backend
from mlxspec.drafting.registry import DrafterContext
from mlxspec.params import GenerationParams, Options, SamplingParams

Setup = Mapping[str, Any]
"""Values by name, ready for JSON; only figures of equal setups are comparable."""

_USUAL = {
    "branching": None,
    "depth": None,
    "exit_threshold": None,
    "chain_rule": Options.chain_rule,
    "top_p": SamplingParams.top_p,
    "min_p": SamplingParams.min_p,
}
_OTHERS = ("mlx-lm", "mlx-dspark")


def setup_of(context: DrafterContext, params: GenerationParams, baseline: str) -> Setup:
    """Return the setup of a run, with those settings of drafts and filters that are not usual."""
    facts, options = backend.facts(), context.options
    versions = {"mlxspec": __version__, "mlx": facts.mlx, "python": facts.python}
    chosen = {
        "branching": options.branching,
        "depth": options.depth,
        "exit_threshold": options.exit_threshold,
        "chain_rule": options.chain_rule,
        "top_p": params.sampling.top_p,
        "min_p": params.sampling.min_p,
    }
    return {
        "model": context.loaded.name,
        "weights": context.loaded.weights,
        "device": f"{facts.device}, {facts.cores} cores, {facts.memory_gb:.0f} GB",
        "system": facts.system,
        "blas": facts.blas,
        "versions": versions | {name: found for name in _OTHERS if (found := version_of(name))},
        "max_tokens": params.max_tokens,
        "num_draft_tokens": params.num_draft_tokens,
        "lookahead": context.options.lookahead,
        **{name: value for name, value in chosen.items() if value != _USUAL[name]},
        "seed": params.seed,
        "baseline": baseline,
    }


def setup_lines(setup: Setup) -> list[str]:
    """Return a setup as lines of a name and a value."""
    versions = ", ".join(f"{name} {number}" for name, number in setup["versions"].items())
    chosen = [f"{name.replace('_', ' ')} {setup[name]}" for name in _USUAL if name in setup]
    settings = (
        f"{setup['max_tokens']} tokens at most",
        f"{setup['num_draft_tokens']} draft nodes a round",
        f"draft models {setup['lookahead']}",
        *chosen,
    )
    rows = {name: setup[name] for name in ("model", "weights", "device", "system", "blas")}
    rows |= {"versions": versions, "settings": ", ".join(settings)}
    return [f"{name:<10}{value}" for name, value in rows.items() if value]


def version_of(package: str) -> str:
    """Return the version of a package; "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
