"""Stores measurements of this machine, so that each is made once.

One small JSON file in the cache folder holds the cost curves of targets and the speeds of their
drafters. It only saves time: if it cannot be read or written, they are measured again.
"""

from functools import partial

from mlxspec.budget import CostBook, MeasuredBudget
from mlxspec.device import chips
from mlxspec.device.speed import is_busy, machine_key
from mlxspec.kv.cache import Cache
from mlxspec.loading import LoadedModel
from mlxspec.loading.records import Records

_RECORDS = Records("measured.json")
load, store, clear = _RECORDS.load, _RECORDS.store, _RECORDS.clear
_WORTH_KEEPING_MS = 5.0  # of one row: measuring a faster model again is cheap


def budget_for(loaded: LoadedModel, cache: Cache) -> MeasuredBudget:
    """Return a budget that starts with the stored cost curves of such a target and cache.

    Without any it starts with those that were published for this chip.
    """
    shape = loaded.config.shape_words  # the cost of a forward depends on shapes, not on numbers
    key = " | ".join([machine_key(), shape, loaded.weights, cache.describe(), "ms by rows"])
    chip = chips.here()
    steps = chip.steps(loaded.weights) if chip else None
    costs = CostBook(steps.costs if steps else None)
    costs.read(load(key) or {})
    return MeasuredBudget(costs, partial(_keep_costs, key))


def _keep_costs(key: str, costs: CostBook) -> None:
    if not is_busy() and any(curve.ms[1] >= _WORTH_KEEPING_MS for curve in costs.curves.values()):
        store(key, costs.as_dict())
