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
    """A model that can be chosen.

    Attributes:
        memory_tokens: Number of tokens that `memory_gb` includes; 0 if the size of keys and
            values is not known before the model is built.
        drafts: Description of the drafts that it verifies, or that it was not examined yet; "" if
            it is not on this disk or cannot be run.
        expected_tps: Tokens/s of plain decoding that the memory of this machine allows; None if
            that was not estimated.
    """

    source: str  # the value for `--model`; "default" for the default model
    name: str
    size_gb: float  # GB on the disk; GB of the download if the model is not here
    is_here: bool = True  # whether the model is on this disk
    packing: str = ""  # description of how the weights are stored; "" if that is not known
    architecture: str = ""  # the family, or ""
    context_length: int = 0  # context length in tokens; 0 if it is not known
    memory_gb: float = 0.0  # GB of memory for weights, and keys and values of `memory_tokens`; or 0
    memory_tokens: int = 0
    problem: str = ""  # why the model cannot be chosen, or ""
    drafts: str = ""
    is_bound: bool = False  # whether `memory_gb` is an upper bound: mlx-lm runs the model
    licence: str = ""  # licence of a model that is offered for download, else ""
    expected_tps: float | None = None

    def fit_in(self, memory_gb: float) -> Fit:
        """Return how the model fits the memory that models may use; loading refuses "too large"."""
        if self.memory_gb > memory_gb:
            return "too large"
        return "fits" if self.memory_gb <= _COMFORTABLE * memory_gb else "tight"


@dataclass(frozen=True)
class DrafterEntry:
    """A drafter for one target.

    Attributes:
        tokens_per_s: Speed with this target on this machine; None if it was not measured.
    """

    drafter: str  # the value for `--drafter`
    name: str
    meaning: str = ""  # description in a few words
    problem: str = ""  # why the drafter cannot draft for the target, or ""
    tokens_per_s: float | None = None
    is_fastest: bool = False  # whether this is the fastest of all measured drafters
