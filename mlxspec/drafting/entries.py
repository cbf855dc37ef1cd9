"""What is told of models and drafters that can be chosen: plain records, made without MLX.

`catalogue.py` finds them; the app shows them, and knows neither disks nor what makes a drafter fit.
"""

from dataclasses import dataclass
from typing import Literal

Fit = Literal["fits", "tight", "too large"]
"""How a model fits the memory: with room for others, hardly, or not at all."""

_COMFORTABLE = 0.7  # the rest is for longer chats, and beside a CPU for the system


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be chosen.

    Attributes:
        source: What `--model` takes; "default" for the default model.
        name: What to call it.
        size_gb: Room it takes on the disk; of one that is not here, the size of its download.
        is_here: Whether it is on this disk.
        packing: How its weights are stored, in words; "" where it is not known.
        architecture: Its family, or "".
        context_length: Tokens it was made for, or 0.
        memory_gb: Memory it takes here with the keys and values of `memory_tokens`, or 0.
        memory_tokens: Tokens that counts.
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
    problem: str = ""

    def fit_in(self, memory_gb: float) -> Fit:
        """Return how it fits the memory that models may take; loading refuses what is too large."""
        if self.memory_gb > memory_gb:
            return "too large"
        return "fits" if self.memory_gb <= _COMFORTABLE * memory_gb else "tight"


@dataclass(frozen=True)
class DrafterEntry:
    """A drafter for one target.

    Attributes:
        drafter: What `--drafter` takes.
        name: What to call it.
        meaning: What it does, in a few words.
        problem: Why it cannot draft for the target, or "".
        tokens_per_s: Speed of the pair where it was measured on this machine, else None.
        is_fastest: Whether that is the most of all that were measured.
    """

    drafter: str
    name: str
    meaning: str = ""
    problem: str = ""
    tokens_per_s: float | None = None
    is_fastest: bool = False
