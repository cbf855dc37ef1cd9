"""What the model picker is told of models and drafters: plain records, made by who knows them.

Whoever runs the chat with models gives the desk a `Catalogue`; this side neither looks at disks
nor knows what makes a drafter fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Fit = Literal["fits", "tight", "too large"]
"""How a model fits the memory: with room for others, hardly, or not at all."""


@dataclass(frozen=True)
class ModelRecord:
    """A model that can be chosen.

    Attributes:
        source: What to load, "" for the default model.
        name: What to call it.
        size_gb: Room it takes on the disk; of one that is not here, the size of its download.
        is_here: Whether it is on this disk.
        packing: How its weights are stored, in words; "" where it is not known.
        architecture: Its family, or "".
        context_length: Tokens it was made for, or 0.
        memory_gb: Memory it takes with the keys and values of `memory_tokens`, or 0.
        memory_tokens: Tokens that counts.
        fit: How that fits the memory of this machine.
        problem: Why it cannot be chosen, or "".
    """

    source: str
    name: str
    size_gb: float
    is_here: bool = True
    packing: str = ""
    architecture: str = ""
    context_length: int = 0
    memory_gb: float = 0.0
    memory_tokens: int = 0
    fit: Fit = "fits"
    problem: str = ""


@dataclass(frozen=True)
class DrafterRecord:
    """A drafter for one target.

    Attributes:
        drafter: What to load it by.
        name: What to call it.
        meaning: What it does, in a few words.
        problem: Why it cannot draft for the target, or "".
        tokens_per_s: Speed of the pair where it was measured here, else None.
        is_fastest: Whether that is the most of all that were measured.
    """

    drafter: str
    name: str
    meaning: str = ""
    problem: str = ""
    tokens_per_s: float | None = None
    is_fastest: bool = False


class Catalogue(Protocol):
    """Knows the models and drafters of this machine; both methods read disks and take a while."""

    @property
    def memory_gb(self) -> float:
        """Memory of the machine."""

    def models(self) -> Sequence[ModelRecord]:
        """Return the models that can be chosen, the default model first."""

    def drafters(self, source: str) -> Sequence[DrafterRecord]:
        """Return the drafters for a model, the most useful first."""
