"""Where two greedy replies part, and whether a rounding decided.

Kernels round a row differently when other rows stand beside it, so two greedy replies may part
where the two best tokens are nearly equal. What the target says there, with nothing beside it,
tells such a place from a mistake.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxspec.engine import Engine

NEAR_TIE = 1e-3
"""Logits that differ less are nearly equal, in float32."""


@dataclass(frozen=True)
class Difference:
    """Where a reply leaves another.

    Attributes:
        index: Tokens before it, which are the same.
        token: The token written there, or None where the reply is over.
        expected: The token of the other reply, or None likewise.
        gap: The target's best logit there less the lower one of the two; None where one reply is
            over.
    """

    index: int
    token: int | None
    expected: int | None
    gap: float | None

    @property
    def is_near_tie(self) -> bool:
        """Whether the target hardly prefers one to the other, and nothing to both."""
        return self.gap is not None and self.gap < NEAR_TIE


def first_difference(
    engine: Engine, prompt: Sequence[int], written: Sequence[int], expected: Sequence[int]
) -> Difference | None:
    """Return where two greedy replies to a prompt part, or None where they are the same.

    Args:
        engine: Its target is asked; its cache is another afterwards.
        prompt: The tokens before both.
        written: A reply.
        expected: The reply that it should be.
    """
    if list(written) == list(expected):
        return None
    pairs = enumerate(zip(written, expected, strict=False))
    index = next((i for i, (a, b) in pairs if a != b), min(len(written), len(expected)))
    if index in (len(written), len(expected)):
        token, other = (
            reply[index] if index < len(reply) else None for reply in (written, expected)
        )
        return Difference(index, token, other, gap=None)
    engine.target.reset()
    engine.target.observe([*prompt, *written[:index]])
    logits = np.array(engine.target.next_logits().astype(mx.float32))
    gap = float(logits.max() - min(logits[written[index]], logits[expected[index]]))
    return Difference(index, written[index], expected[index], gap)
