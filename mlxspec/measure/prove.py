"""The proof of a reply: decode it again without drafts and compare the two token by token.

Plain decoding stops at the first difference: nothing after it can be compared. The target's logits
there distinguish rounding from a mistake (see `compare.py`).
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
"""Called with the number of compared tokens and of all tokens."""


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
    """Compare a greedy reply with plain decoding.

    The engine's cache is emptied first, because both texts would repeat a fault of an earlier turn;
    afterwards it holds the plain reply. The first `num_kept` tokens of the reply are kept tokens
    and count as the same. `should_stop` is called once per token. Raises `ValueError` if the reply
    is empty, or if it was sampled: a second sample may differ.
    """
    if not params.is_greedy:
        raise ValueError(
            "a sampled reply is one draw of many, and decoding again gives another: set the "
            "temperature to 0 and answer again to compare"
        )
    if not reply:
        raise ValueError("the reply is empty: there is nothing to compare")
    num_same = num_kept
    plainly = replace(params, max_tokens=len(reply))
    for token in _plain_tokens(engine, prompt, reply[:num_kept], plainly, should_stop):
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
    kept: Sequence[int],
    params: GenerationParams,
    should_stop: Callable[[], bool],
) -> Iterator[int]:
    with device_turn():
        engine.target.reset()
    events = engine.generate(
        prompt, params, drafter=NoDrafter(), kept=kept, should_stop=should_stop
    )
    for event in events:
        if isinstance(event, PlainDecoded | DraftVerified):
            yield from (token.token for token in event.emit)
