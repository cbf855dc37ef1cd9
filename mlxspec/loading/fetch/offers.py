"""A short, dated list of models that are worth fetching, from a data file in this folder."""

import tomllib
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

from mlxspec.device import backend

_FLOAT_GB = 4.0
"""GB of a billion weights that are unpacked to float32."""


@dataclass(frozen=True)
class Offer:
    """A model on the hub.

    Attributes:
        licence: Its licence, in one or two words.
        weights: Number of its weights, in billions.
        active: The weights that one token reads, in billions.
    """

    repository: str
    licence: str
    download_gb: float
    weights: float
    active: float

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


def offers_date() -> date:
    """Return the day of the last review of the list."""
    day: date = _content()["date"]
    return day


def _content() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "offers.toml").read_text(encoding="utf-8"))
