"""Proof on demand: decode a reply once more without drafts and compare it token by token.

Both texts begin alike, so plain decoding needs to go no further than the first difference; what
the target says of it tells a rounding from a mistake (see `compare.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mlxspec.device.turns import device_turn
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from mlxspec.measure.compare import difference_at, proof_of
from mlxspec.params import GenerationParams
from mlxspec.trace.events import DraftVerified, PlainDecoded
from mlxspec.trace.proof import Proof

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
            same, pair = reply[:num_same], (reply[num_same], token)
            found = difference_at(engine, prompt, same, pair, params.sampling)
            return proof_of(engine, len(reply), found)
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
