"""Compare greedy replies: where two part, and whether a rounding decided.

Kernels round a row differently when other rows stand beside it, and other projects add the same
numbers in another order; so two greedy replies may part where the two best tokens are nearly
equal. What the target says there, with nothing beside it, tells such a place from a mistake; how
nearly is measured there too (see `drift.py`).
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxspec.device.turns import device_turn
from mlxspec.engine.engine import Engine
from mlxspec.measure.drift import near_tie_after
from mlxspec.params import SamplingParams
from mlxspec.trace.difference import Difference, common_length
from mlxspec.trace.near_tie import near_tie_of
from mlxspec.trace.proof import Proof
from mlxspec.verify.distribution import NodeLaws, TokenCounts

_GREEDY = SamplingParams()


def first_difference(
    engine: Engine,
    prompt: Sequence[int],
    written: Sequence[int],
    expected: Sequence[int],
    *,
    near_tie: float | None = None,
    is_foreign: bool = False,
) -> Difference | None:
    """Return where two greedy replies to a prompt part, or None where they are the same.

    Args:
        engine: Its target is asked; its cache is another afterwards.
        prompt: The tokens before both.
        written: A reply.
        expected: The reply that it should be.
        near_tie: Largest gap that rounding explains, where that was measured; else it is measured
            where the two part.
        is_foreign: Whether another project wrote one of the two: it may round by a last digit
            where nothing drifts here.
    """
    index = common_length(written, expected)
    if index == len(written) == len(expected):
        return None
    token, other = (reply[index] if index < len(reply) else None for reply in (written, expected))
    if token is None or other is None:
        return Difference(index, token, other, gap=None)
    with device_turn():
        engine.target.reset()
    pair = token, other
    return difference_at(
        engine, prompt, written[:index], pair, near_tie=near_tie, is_foreign=is_foreign
    )


def difference_at(
    engine: Engine,
    prompt: Sequence[int],
    same: Sequence[int],
    pair: tuple[int, int],
    law: SamplingParams = _GREEDY,
    *,
    near_tie: float | None = None,
    is_foreign: bool = False,
) -> Difference:
    """Return what the target says of two tokens after what is the same in both replies.

    Args:
        engine: Its target holds a beginning of prompt and reply, and perhaps more; the rest is
            read.
        prompt: The tokens before both replies.
        same: What follows in both.
        pair: What is written then, and what is expected.
        law: Its bias and penalties are part of the logits.
        near_tie: As in `first_difference`.
        is_foreign: Likewise.
    """
    target, before = engine.target, [*prompt, *same]
    with device_turn():
        target.rollback_to(min(len(before), len(target)))
        target.observe(before[len(target) :])
        own = target.next_logits()
        counts = TokenCounts.of(list(prompt), target.vocab_size).add(list(same))
        logits = np.array(NodeLaws(law, own[None], counts).adjusted[0])
        if near_tie is None:
            # A penalty multiplies what logits drift as well.
            scale = max(law.repetition_penalty, 1 / law.repetition_penalty)
            near_tie = scale * near_tie_after(target, before, engine.context_length)
        if is_foreign:
            near_tie = max(near_tie, near_tie_of(_step_of(own)))
    token_logit, expected_logit = (float(logits[token]) for token in pair)
    return Difference(
        len(same),
        *pair,
        gap=float(logits.max()) - min(token_logit, expected_logit),
        near_tie=near_tie,
        token_logit=token_logit,
        expected_logit=expected_logit,
    )


def proof_of(engine: Engine, num_tokens: int, found: Difference) -> Proof:
    """Return a difference from plain decoding together with the texts of the two tokens.

    Args:
        engine: Its tokenizer wrote them.
        num_tokens: Tokens of the reply.
        found: Where it leaves the plain one.
    """
    drafted, plain = (_text(engine, token) for token in (found.token, found.expected))
    return Proof(num_tokens, found.index, found, drafted, plain)


def _text(engine: Engine, token: int | None) -> str:
    if token is None:
        return ""
    return engine.tokenizer.token_bytes(token).decode("utf-8", "replace")


def _step_of(logits: mx.array) -> float:
    """Return by how much the largest logit differs from the next number of its type."""
    _, exponent = np.frexp(float(mx.abs(logits).max()))
    return float(np.ldexp(mx.finfo(logits.dtype).eps, int(exponent) - 1))
