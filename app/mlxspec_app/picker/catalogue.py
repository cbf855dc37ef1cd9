"""The interface from which the model picker gets models and drafters, as plain records.

The command that starts the chat implements `Catalogue`: the picker itself reads no disks and does
not decide which drafter fits a target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Fit = Literal["fits", "tight", "too large"]
"""How a model fits the memory: with memory to spare, hardly, or not at all."""


@dataclass(frozen=True)
class ModelRecord:
    """A model that the user can choose.

    Attributes:
        source: What to load, "" for the default model.
        name: Name in the list.
        size_gb: Size on the disk in GB; of a model that is not here, the size of its download.
        is_here: Whether the model is on this disk.
        packing: How the weights are stored, in words; "" if it is not known.
        architecture: Family of the model, or "".
        context_length: Context length of the model in tokens, or 0.
        memory_gb: Memory in GB for the weights and a cache of `memory_tokens` tokens, or 0.
        memory_tokens: Number of cached tokens that `memory_gb` includes.
        fit: How `memory_gb` fits the memory of this machine.
        problem: Why the model cannot be chosen, or "".
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
        drafter: The word that loads it.
        name: Name in the list.
        meaning: Description in a few words.
        problem: Why it cannot draft for the target, or "".
        tokens_per_s: Measured tokens/s of target and drafter on this machine, or None.
        is_fastest: Whether this is the largest of all measured speeds.
    """

    drafter: str
    name: str
    meaning: str = ""
    problem: str = ""
    tokens_per_s: float | None = None
    is_fastest: bool = False


class Catalogue(Protocol):
    """Lists the models and drafters of this machine; both methods read disks and take a while."""

    @property
    def memory_gb(self) -> float:
        """Memory of the machine in GB."""

    def models(self) -> Sequence[ModelRecord]:
        """Return the models that can be chosen, the default model first."""

    def drafters(self, source: str) -> Sequence[DrafterRecord]:
        """Return the drafters for a model, the most useful first."""
