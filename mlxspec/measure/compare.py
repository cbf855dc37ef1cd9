"""Where two greedy replies part, and whether a rounding decided.

Kernels round a row differently when other rows stand beside it, and other projects add the same
numbers in another order; so two greedy replies may part where the two best tokens are nearly
equal. What the target says there, with nothing beside it, tells such a place from a mistake; how
nearly is measured there too (see `drift.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxspec.engine.engine import Engine
from mlxspec.measure.drift import near_tie_after
from mlxspec.trace.near_tie import is_near_tie, near_tie_of, verdict_on


@dataclass(frozen=True)
class Difference:
    """Where a reply leaves another.

    Attributes:
        index: Tokens before it, which are the same.
        token: The token written there, or None where the reply is over.
        expected: The token of the other reply, or None likewise.
        gap: The target's best logit there less the lower one of the two; None where one reply is
            over.
        near_tie: Largest gap that rounding explains there.
    """

    index: int
    token: int | None
    expected: int | None
    gap: float | None
    near_tie: float = 0.0

    @property
    def is_near_tie(self) -> bool:
        """Whether the target hardly prefers one to the other, and nothing to both."""
        return is_near_tie(self.gap, self.near_tie)

    def describe(self) -> str:
        """Return in a line what stands there."""
        if self.gap is None:
            return f"parts after {self.index} tokens, where one of the two ends"
        verdict = verdict_on(self.gap, self.near_tie)
        return f"parts after {self.index} tokens, top-2 gap {self.gap:.2g}: {verdict}"


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
    tokens, target = [*prompt, *written[:index]], engine.target
    target.reset()
    target.observe(tokens)
    logits = target.next_logits()
    values = np.array(logits.astype(mx.float32))
    gap = float(values.max() - min(values[written[index]], values[expected[index]]))
    near_tie = max(
        near_tie_after(target, tokens, engine.context_length), near_tie_of(_step_of(logits))
    )
    return Difference(index, written[index], expected[index], gap, near_tie)


def _step_of(logits: mx.array) -> float:
    """Return by how much the largest logit differs from the next number of its type.

    Logits of another project may differ by as much where ours never drift.
    """
    _, exponent = np.frexp(float(mx.abs(logits).max()))
    return float(np.ldexp(mx.finfo(logits.dtype).eps, int(exponent) - 1))
