"""What ranks tell each other: JSON, as sums of bytes over all ranks.

No connection of our own is needed, and `mlx.launch` may have started the ranks.
"""

import json
import time
from statistics import median
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec.device.turns import device_turn

_HEAD = 8  # bytes of the size of a message
_FRAME = 2048  # bytes of every message; a longer one takes a second sum
_FACTS = 4096  # bytes of each rank's value in `gathered`
_TIMES = 20  # sums that are timed


def told(value: Any, group: mx.distributed.Group) -> Any:
    """Return rank 0's value on every rank; the values of the others do not count."""
    content = json.dumps(value).encode() if group.rank() == 0 else b""
    frame = len(content).to_bytes(_HEAD, "little") + content
    first = _summed(frame[:_FRAME], _FRAME, group)
    size = _HEAD + int.from_bytes(first[:_HEAD], "little")
    rest = _summed(frame[_FRAME:], size - _FRAME, group) if size > _FRAME else b""
    return json.loads((first + rest)[_HEAD:size])


def gathered(value: Any, group: mx.distributed.Group) -> list[Any]:
    """Return the values of all ranks on every rank; the JSON of each has at most 4,096 bytes."""
    own = bytes(group.rank() * _FACTS) + json.dumps(value).encode().ljust(_FACTS)
    found = _summed(own, group.size() * _FACTS, group)
    return [json.loads(found[at : at + _FACTS]) for at in range(0, len(found), _FACTS)]


def _summed(content: bytes, size: int, group: mx.distributed.Group) -> bytes:
    """Return the sum of what the ranks give, as `size` bytes; only one rank gives each byte."""
    padded = mx.array(np.frombuffer(content.ljust(size, b"\0"), np.uint8))
    with device_turn():
        return np.array(mx.distributed.all_sum(padded, group=group)).tobytes()


def seconds_of_a_sum(numbers: int, group: mx.distributed.Group) -> float:
    """Time sums of this many float32 numbers over all ranks; return the median."""
    seconds = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        mx.eval(mx.distributed.all_sum(mx.ones(numbers), group=group))
        seconds.append(time.perf_counter() - start)
    return median(seconds)
