"""Proof on demand: decode a reply once more without drafts and compare it token by token.

Both texts begin alike, so plain decoding needs to go no further than the first difference; there
the target is asked for its logits with nothing beside them. Kernels round a row differently where
other rows stand beside it, so the two tokens may be nearly equal then, and nothing else: how
nearly is measured on the very text (see `drift.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from mlxspec.device.turns import device_turn
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from mlxspec.measure.drift import near_tie_after
from mlxspec.params import GenerationParams
from mlxspec.trace.events import DraftVerified, PlainDecoded
from mlxspec.trace.proof import Difference, Proof
from mlxspec.verify.distribution import NodeLaws, TokenCounts

Progress = Callable[[int, int], None]
"""Called with the tokens compared and the tokens in all."""


def prove(
    engine: Engine,
    prompt: Sequence[int],
    reply: Sequence[int],
    params: GenerationParams,
    *,
    near_tie: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Progress = lambda done, total: None,
) -> Proof:
    """Compare a greedy reply with plain decoding.

    Args:
        engine: What wrote it. Its cache is read anew, as a fault that an earlier turn left there
            would be in both texts; it holds the plain one afterwards.
        prompt: Tokens before the reply.
        reply: Its tokens.
        params: The settings it was written with.
        near_tie: Largest gap between two logits that rounding explains, where that was measured;
            else it is where the two part.
        should_stop: Asked once a token.
        on_progress: Told how far it is.

    Raises:
        ValueError: The reply is empty or was sampled: then another draw need not be the same.
    """
    if not params.is_greedy:
        raise ValueError(
            "a sampled reply is one draw of many, and decoding again gives another: set the "
            "temperature to 0 and answer again to compare"
        )
    if not reply:
        raise ValueError("the reply is empty: there is nothing to compare")
    num_same = 0
    plainly = replace(params, max_tokens=len(reply))
    for token in _plain_tokens(engine, prompt, plainly, should_stop):
        if token != reply[num_same]:
            pair = reply[num_same], token
            found = _difference(engine, prompt, reply[:num_same], pair, params, near_tie)
            return Proof(len(reply), num_same, found)
        num_same += 1
        on_progress(num_same, len(reply))
    return Proof(len(reply), num_same)


def _plain_tokens(
    engine: Engine,
    prompt: Sequence[int],
    params: GenerationParams,
    should_stop: Callable[[], bool],
) -> Iterator[int]:
    with device_turn():
        engine.target.reset()
    for event in engine.generate(prompt, params, drafter=NoDrafter(), should_stop=should_stop):
        if isinstance(event, PlainDecoded | DraftVerified):
            yield from (token.token for token in event.emit)


def _difference(
    engine: Engine,
    prompt: Sequence[int],
    same: Sequence[int],
    pair: tuple[int, int],
    params: GenerationParams,
    near_tie: float | None,
) -> Difference:
    """Return what parts a reply from the plain one: the tokens of both after what is the same."""
    target, law = engine.target, params.law
    before = [*prompt, *same]
    with device_turn():
        target.rollback_to(min(len(before), len(target)))
        target.observe(before[len(target) :])
        counts = TokenCounts.of(list(prompt), target.vocab_size).add(list(same))
        logits = np.array(NodeLaws(law, target.next_logits()[None], counts).adjusted[0])
        if near_tie is None:
            # A penalty multiplies what logits drift as well.
            scale = max(law.repetition_penalty, 1 / law.repetition_penalty)
            near_tie = scale * near_tie_after(target, before, engine.context_length)
    drafted, plain = pair
    return Difference(
        len(same),
        drafted=_text(engine, drafted),
        plain=_text(engine, plain),
        drafted_logit=float(logits[drafted]),
        plain_logit=float(logits[plain]),
        near_tie=near_tie,
    )


def _text(engine: Engine, token: int) -> str:
    return engine.tokenizer.token_bytes(token).decode("utf-8", "replace")
