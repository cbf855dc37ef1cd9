"""The drafter that proposes nothing: plain decoding, and the baseline of every comparison."""

from mlxspec.drafters.base import Drafter
from mlxspec.drafts.draft import Draft


class NoDrafter(Drafter):
    """Proposes nothing, so the target decodes plainly."""

    name = "none"
    guesses = False

    def fresh(self) -> "NoDrafter":
        return NoDrafter()

    def propose(self, root: int, budget: int) -> Draft:
        return Draft.empty(root)
