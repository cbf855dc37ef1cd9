"""Stores measurements of this machine, so that each is made once.

One small JSON file in the cache folder holds the cost curves of targets and the speeds of their
drafters. It only saves time: where it cannot be read or written, they are measured again.
"""

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from mlxspec.budget import CostBook, MeasuredBudget
from mlxspec.device import backend, core_split
from mlxspec.kv.cache import Cache
from mlxspec.loading import LoadedModel
from mlxspec.loading.fetch.default_model import cache_folder

_FILE = "measured.json"
_WORTH_KEEPING_MS = 5.0  # of one row: for a faster model, to measure again takes no time


def machine_key() -> str:
    """Return what a speed depends on besides the model: device, cores and libraries."""
    facts, threads = backend.facts(), os.environ.get("OPENBLAS_NUM_THREADS")
    library = (facts.blas or facts.backend) + (f" of {threads} threads" if threads else "")
    shared = f", split among {core_split.count()}" if core_split.count() else ""
    return f"{facts.device}, {facts.cores} cores{shared}, {library}, mlx {facts.mlx}"


def load(key: str) -> dict[str, Any] | None:
    """Return the value stored under a key, or None."""
    value = _read().get(key)
    return value if isinstance(value, dict) else None


def store(key: str, value: dict[str, Any]) -> None:
    """Store a value under a key, in place of an earlier one."""
    path = _path()
    partial = path.with_name(f"{_FILE}.{os.getpid()}.part")
    with suppress(OSError):  # on a full or read-only disk we only measure again later
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(_read() | {key: value}, indent=1), encoding="utf-8")
        partial.replace(path)  # in one step: no other process sees half a file


def clear() -> None:
    """Delete all stored values."""
    with suppress(OSError):
        _path().unlink(missing_ok=True)


def budget_for(loaded: LoadedModel, cache: Cache) -> MeasuredBudget:
    """Return a budget that starts with the stored cost curves of such a target.

    Args:
        loaded: The target.
        cache: A cache of the kind that it uses.
    """
    key = _cost_key(loaded, cache)
    costs = CostBook()
    costs.read(load(key) or {})
    return MeasuredBudget(costs, partial(_keep_costs, key))


def _keep_costs(key: str, costs: CostBook) -> None:
    if any(curve.ms[1] >= _WORTH_KEEPING_MS for curve in costs.curves.values()):
        store(key, costs.as_dict())


def _cost_key(loaded: LoadedModel, cache: Cache) -> str:
    """Return what the cost of a forward depends on: the shapes, not the numbers."""
    config = loaded.config
    shape = (
        f"{config.num_hidden_layers} layers of {config.hidden_size} and "
        f"{config.intermediate_size}, {config.num_attention_heads} and "
        f"{config.num_key_value_heads} heads of {config.head_dim}, vocabulary {config.vocab_size}"
    )
    return " | ".join([machine_key(), shape, loaded.weights, cache.describe(), "ms by rows"])


def _path() -> Path:
    return cache_folder() / _FILE


def _read() -> dict[str, Any]:
    try:
        content = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
