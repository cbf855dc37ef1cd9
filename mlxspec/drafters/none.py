"""The drafter that proposes nothing: plain decoding, and the baseline of every comparison."""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.drafters.base import Draft, Round
from mlxspec.params import SamplingParams


class NoDrafter:
    """Proposes nothing, so the target decodes plainly."""

    name = "none"
    num_top_tokens = 0

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        """Ignore the prompt."""

    def fresh(self) -> "NoDrafter":
        return NoDrafter()

    def propose(self, root: int, budget: int) -> Draft:
        return Draft.empty(root)

    def update(self, round: Round) -> None:
        """Learn nothing."""
