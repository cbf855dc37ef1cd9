"""Plain records of the models and drafters that a user can choose, made without MLX.

`catalogue.py` makes them; the app only shows them, and needs no access to disks or drafters.
"""

from dataclasses import dataclass
from typing import Literal

Fit = Literal["fits", "tight", "too large"]
"""How a model fits into memory: with room to spare, barely, or not at all."""

_COMFORTABLE = 0.7  # the rest is for longer chats, and on a CPU for the system


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be chosen; 0 and "" stand for what is not known."""

    source: str  # the value for `--model`; "default" for the default model
    name: str
    size_gb: float  # GB on the disk; GB of the download if the model is not here
    is_here: bool = True  # whether the model is on this disk
    packing: str = ""  # how the weights are stored
    architecture: str = ""  # the family
    context_length: int = 0  # in tokens
    memory_gb: float = 0.0  # GB of memory to read a text of `memory_tokens`
    memory_tokens: int = 0  # 0 if their size is not known before the model is built
    problem: str = ""  # why the model cannot be chosen
    drafts: str = ""  # the drafts that it verifies, or that it was not examined yet
    is_bound: bool = False  # whether `memory_gb` is an upper bound: mlx-lm runs the model
    licence: str = ""  # of a model that is offered for download
    is_recommended: bool = False  # whether it is the one to fetch first on this machine
    expected_tps: float | None = None  # plain tokens/s that the memory of this machine allows

    def fit_in(self, memory_gb: float) -> Fit:
        """Return how the model fits the memory that models may use; loading refuses "too large"."""
        if self.memory_gb > memory_gb:
            return "too large"
        return "fits" if self.memory_gb <= _COMFORTABLE * memory_gb else "tight"


@dataclass(frozen=True)
class DrafterEntry:
    """A drafter for one target."""

    drafter: str  # the value for `--drafter`
    name: str
    meaning: str = ""  # description in a few words
    problem: str = ""  # why the drafter cannot draft for the target, or ""
    tokens_per_s: float | None = None  # with this target on this machine, if it was measured
    is_fastest: bool = False  # whether this is the fastest of all measured drafters
