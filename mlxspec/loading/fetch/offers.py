"""Models that are worth fetching: a short, dated list, and the first one for this machine."""

import math
import tomllib
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any, cast

from mlxspec.device import backend
from mlxspec.device.memory import usable_gb

_FLOAT_GB = 4.0  # of a billion weights that are unpacked to float32


@dataclass(frozen=True)
class Offer:
    """A model on the hub."""

    repository: str
    licence: str  # in one or two words
    download_gb: float
    weights: float  # in billions
    active: float  # those that one token reads, in billions
    from_gb: float = math.inf  # memory of a machine with a GPU from which it is recommended
    for_cpu: bool = False  # whether it is recommended for a machine without one

    @property
    def memory_gb(self) -> float:
        """GB of its weights on this machine: as stored on a GPU, unpacked on a CPU."""
        stays = backend.keeps_weights_as_stored()
        return self.download_gb if stays else _FLOAT_GB * self.weights

    @property
    def read_gb(self) -> float:
        """GB of weights that a plain forward reads on this machine."""
        return self.memory_gb * self.active / self.weights


@cache
def offers() -> tuple[Offer, ...]:
    """Return the models that are worth fetching, from small to large."""
    return tuple(
        Offer(**{"active": model["weights"], **model}) for model in _content().get("model", ())
    )


def recommended() -> Offer | None:
    """Return the model to fetch first on this machine; None if none fits in its memory."""
    fitting = [offer for offer in offers() if offer.memory_gb <= usable_gb()]
    if backend.is_cpu():
        return next((offer for offer in fitting if offer.for_cpu), None)
    memory = backend.memory_gb()
    return next((one for one in reversed(fitting) if one.from_gb <= memory), None)


def offers_date() -> date:
    """Return the day of the last review of the list."""
    return cast(date, _content()["date"])


def _content() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "offers.toml").read_text(encoding="utf-8"))
