"""The orders that rank 0 sends to the decoders of the other ranks, as int32 numbers.

An order is `kind, decoder, count` followed by `count` numbers. The orders since the last forward
are sent with the next one, so a round sends one message: the path to commit, then the tree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

_HEAD = 3  # numbers before the payload of an order


class Kind(IntEnum):
    """What a decoder must do; brackets show the payload."""

    OPEN = 1  # []: start with an empty cache
    CLOSE = 2  # []
    RESET = 3  # []
    OBSERVE = 4  # [tokens]
    ROLLBACK = 5  # [length]
    TREE = 6  # [tokens, then as many parents]
    LOGITS_OF_TREE = 7  # as TREE; its rows are dropped
    LOWER = 8  # [token, layer]
    CHAIN = 9  # [tokens]
    COMMIT = 10  # [path]
    COMMIT_CHAIN = 11  # [tokens]
    LAST = 12  # []: compute the last token again
    PROBE = 13  # [numbers, times]: sum that many numbers over all ranks, `times` times


@dataclass(frozen=True)
class Order:
    """One order for the decoder with the number `decoder`; `numbers` is the payload."""

    kind: Kind
    decoder: int
    numbers: tuple[int, ...] = ()


def packed(orders: Sequence[Order]) -> bytes:
    """Return orders as bytes: little-endian int32 numbers."""
    numbers: list[int] = []
    for order in orders:
        numbers += [order.kind, order.decoder, len(order.numbers), *order.numbers]
    return np.array(numbers, "<i4").tobytes()


def unpacked(message: bytes) -> Iterator[Order]:
    """Yield the orders of a message.

    Raises:
        ValueError: The message is not what `packed` returns.
    """
    if len(message) % 4:
        raise ValueError(f"a message has {len(message)} bytes, which are no int32 numbers")
    numbers: list[int] = np.frombuffer(message, "<i4").tolist()
    start = 0
    while start < len(numbers):
        head, start = numbers[start : start + _HEAD], start + _HEAD
        if len(head) < _HEAD or not 0 <= head[2] <= len(numbers) - start:
            raise ValueError(f"a message ends within an order, at number {start}")
        kind, decoder, count = head
        yield Order(Kind(kind), decoder, tuple(numbers[start : start + count]))
        start += count
