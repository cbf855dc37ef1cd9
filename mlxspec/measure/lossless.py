"""Whether a greedy reply is that of plain decoding: the first difference, and what explains it.

Two greedy replies may differ at a near-tie. The target's logits of the row alone distinguish one
from a mistake; its size is measured at the same position (see `drift.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import mlx.core as mx
import numpy as np

from mlxspec.device.turns import device_turn
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from mlxspec.errors import Progress
from mlxspec.measure.drift import near_tie_after
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.difference import Difference, Proof, common_length, near_tie_of
from mlxspec.trace.events import DraftVerified, PlainDecoded
from mlxspec.verify.distribution import TokenCounts, adjust

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
    """Return the first difference of two greedy replies, or None if they are the same.

    `near_tie` is the largest gap that rounding explains; None to measure it at the difference.
    `is_foreign` means that another project wrote one of the two: it adds the same numbers in
    another order, so it may round the last digit differently, even if nothing drifts here.
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
    sampling: SamplingParams = _GREEDY,
    *,
    near_tie: float | None = None,
    is_foreign: bool = False,
) -> Difference:
    """Return the difference of two replies: the written token and the expected one after `same`.

    The shorter of the target's history and prompt + `same` must be a prefix of the other. Bias and
    penalties of `sampling` are part of the logits. The rest is as in `first_difference`.
    """
    target, before = engine.target, [*prompt, *same]
    with device_turn():
        target.rollback_to(min(len(before), len(target)))
        target.observe(before[len(target) :])
        own = target.next_logits()
        counts = TokenCounts.of(list(prompt), target.vocab_size).add(list(same))
        logits = np.array(adjust(sampling, own[None], counts)[0])
        if near_tie is None:
            # a penalty multiplies the logits, and with them their drift
            scale = max(sampling.repetition_penalty, 1 / sampling.repetition_penalty)
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
    """Return a difference of a reply of `num_tokens`, with the texts of the two tokens."""
    drafted, plain = (
        "" if token is None else engine.tokenizer.token_bytes(token).decode("utf-8", "replace")
        for token in (found.token, found.expected)
    )
    return Proof(num_tokens, found.index, found, drafted, plain)


def prove(
    engine: Engine,
    prompt: Sequence[int],
    reply: Sequence[int],
    params: GenerationParams,
    *,
    num_kept: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Progress = lambda done, total: None,
) -> Proof:
    """Compare a greedy reply with plain decoding, up to the first difference.

    The engine's cache is emptied first, because both texts would repeat a fault of an earlier turn;
    afterwards it holds the plain reply. The first `num_kept` tokens are kept tokens and count as
    the same. Raises `ValueError` if the reply is empty, or if it was sampled.
    """
    if not params.is_greedy:
        raise ValueError(
            "a sampled reply is one draw of many, and decoding again gives another: set the "
            "temperature to 0 and answer again to compare"
        )
    if not reply:
        raise ValueError("the reply is empty: there is nothing to compare")
    with device_turn():
        engine.target.reset()
    plainly, kept, num_same = replace(params, max_tokens=len(reply)), reply[:num_kept], num_kept
    events = engine.generate(
        prompt, plainly, drafter=NoDrafter(), kept=kept, should_stop=should_stop
    )
    emitted = (event.emit for event in events if isinstance(event, PlainDecoded | DraftVerified))
    for token in (one.token for tokens in emitted for one in tokens):
        if token != reply[num_same]:
            same, pair = reply[:num_same], (reply[num_same], token)
            found = difference_at(engine, prompt, same, pair, params.sampling)
            return proof_of(engine, len(reply), found)
        num_same += 1
        on_progress(num_same, len(reply))
    return Proof(len(reply), num_same)


def _step_of(logits: mx.array) -> float:
    """Return the distance between the largest logit and the next number of its dtype."""
    _, exponent = np.frexp(float(mx.abs(logits).max()))
    return float(np.ldexp(mx.finfo(logits.dtype).eps, int(exponent) - 1))
