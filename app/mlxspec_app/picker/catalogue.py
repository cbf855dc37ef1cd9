"""Whom the model picker asks what is here.

Whoever runs the chat with models gives the desk a `Catalogue`; this side neither looks at disks
nor knows what makes a drafter fit.
"""

from collections.abc import Sequence
from typing import Protocol

from mlxspec.drafting.entries import DrafterEntry, ModelEntry


class Catalogue(Protocol):
    """Knows the models and drafters of this machine; both methods read disks and take a while.

    The source of the default model is "" here.
    """

    @property
    def memory_gb(self) -> float:
        """Memory that models may take."""

    def models(self) -> Sequence[ModelEntry]:
        """Return the models that can be chosen, the default model first."""

    def drafters(self, source: str) -> Sequence[DrafterEntry]:
        """Return the drafters for a model, the most useful first."""
