"""Proof on demand: decode a reply once more without drafts and compare it token by token.

Both texts begin alike, so plain decoding needs to go no further than the first difference; there
the target is asked for its logits with nothing beside them. In float32 the two tokens are then
nearly equal: kernels round a row differently where other rows stand beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import mlx.core as mx
import numpy as np

from mlxspec.drafters.none import NoDrafter
from mlxspec.engine import Engine
from mlxspec.events import DraftVerified, PlainDecoded
from mlxspec.params import GenerationParams
from mlxspec.proof import Difference, Proof
from mlxspec.turns import device_turn

Progress = Callable[[int, int], None]
"""Called with the tokens compared and the tokens in all."""


def prove(
    engine: Engine,
    prompt: Sequence[int],
    reply: Sequence[int],
    params: GenerationParams,
    *,
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
            found = _difference(engine, prompt, reply[:num_same], reply[num_same], token)
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
    engine: Engine, prompt: Sequence[int], same: Sequence[int], drafted: int, plain: int
) -> Difference:
    target = engine.target
    before = [*prompt, *same]
    with device_turn():
        target.rollback_to(min(len(before), len(target)))
        target.observe(before[len(target) :])
        logits = np.array(target.next_logits().astype(mx.float32))
    return Difference(
        len(same),
        drafted=_text(engine, drafted),
        plain=_text(engine, plain),
        drafted_logit=float(logits[drafted]),
        plain_logit=float(logits[plain]),
    )


def _text(engine: Engine, token: int) -> str:
    return engine.tokenizer.token_bytes(token).decode("utf-8", "replace")
