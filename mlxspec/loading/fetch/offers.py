"""Models that are worth fetching: a short list with a date, in a data file beside this one."""

import tomllib
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

from mlxspec.device import backend

_FLOAT_GB = 4.0
"""GB of a billion weights where they are unpacked to float32."""


@dataclass(frozen=True)
class Offer:
    """A model on the hub.

    Attributes:
        repository: Its hub id.
        licence: Its licence, in a word or two.
        download_gb: GB of the download.
        weights: Its weights, in billions.
        active: Those of them that a token reads, in billions.
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
    """Return the day on which the list was last looked through."""
    day: date = _content()["date"]
    return day


def _content() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "offers.toml").read_text(encoding="utf-8"))
