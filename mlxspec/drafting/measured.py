"""Stores measurements of this machine, so that each is made once.

One small JSON file in the cache folder holds the cost curves of targets and the speeds of their
drafters. It only saves time: if it cannot be read or written, they are measured again.
"""

from functools import partial
from typing import Any

from mlxspec.budget import CostBook, MeasuredBudget
from mlxspec.device.speed import machine_key
from mlxspec.kv.cache import Cache
from mlxspec.loading import LoadedModel
from mlxspec.loading.records import Records

_RECORDS = Records("measured.json")
_WORTH_KEEPING_MS = 5.0  # of one row: measuring a faster model again is cheap


def load(key: str) -> dict[str, Any] | None:
    """Return the value stored under a key, or None."""
    return _RECORDS.load(key)


def store(key: str, value: dict[str, Any]) -> None:
    """Store a value under a key; it replaces an earlier one."""
    _RECORDS.store(key, value)


def clear() -> None:
    """Delete all stored values."""
    _RECORDS.clear()


def budget_for(loaded: LoadedModel, cache: Cache) -> MeasuredBudget:
    """Return a budget that starts with the stored cost curves of such a target and cache."""
    key = _cost_key(loaded, cache)
    costs = CostBook()
    costs.read(load(key) or {})
    return MeasuredBudget(costs, partial(_keep_costs, key))


def _keep_costs(key: str, costs: CostBook) -> None:
    if any(curve.ms[1] >= _WORTH_KEEPING_MS for curve in costs.curves.values()):
        store(key, costs.as_dict())


def _cost_key(loaded: LoadedModel, cache: Cache) -> str:
    """Return what the cost of a forward depends on: the shapes, not the numbers."""
    shape = loaded.config.shape_words
    return " | ".join([machine_key(), shape, loaded.weights, cache.describe(), "ms by rows"])
