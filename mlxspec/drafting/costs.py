"""What forwards of a target cost here, kept from session to session."""

from functools import partial

from mlxspec.budget import CostBook, MeasuredBudget
from mlxspec.drafting.measured import keep, machine_key, recall
from mlxspec.kv.cache import Cache
from mlxspec.loading import LoadedModel

_WORTH_KEEPING_MS = 5.0  # of one row: what is faster is measured again in no time


def budget_for(loaded: LoadedModel, cache: Cache) -> MeasuredBudget:
    """Return a budget that knows what was measured before for such a target.

    Args:
        loaded: The target.
        cache: Of the kind that it runs with.
    """
    key = _key(loaded, cache)
    costs = CostBook()
    costs.read(recall(key) or {})
    return MeasuredBudget(costs, partial(_keep, key))


def _keep(key: str, costs: CostBook) -> None:
    if any(curve.ms[1] >= _WORTH_KEEPING_MS for curve in costs.curves.values()):
        keep(key, costs.as_dict())


def _key(loaded: LoadedModel, cache: Cache) -> str:
    """Return what the cost of a forward depends on: the shapes, not the numbers."""
    config = loaded.config
    shape = (
        f"{config.num_hidden_layers} layers of {config.hidden_size} and "
        f"{config.intermediate_size}, {config.num_attention_heads} and "
        f"{config.num_key_value_heads} heads of {config.head_dim}, vocabulary {config.vocab_size}"
    )
    return " | ".join([machine_key(), shape, loaded.weights, cache.describe(), "ms by rows"])
