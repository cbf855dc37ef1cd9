"""What comes out of a batch: one finished reply per prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxspec.trace.events import FinishReason


@dataclass(frozen=True)
class BatchReply:
    """A finished reply.

    Attributes:
        index: Which prompt it replies to, counted from 0.
        tokens: Emitted tokens, the stop token included.
        text: What they say, stop strings left out.
        finish_reason: "stop", "length", "context" or "cancelled".
        stats: The figures of `GenerationStats.as_dict`; times are those of the whole batch while
            it took part.
        fault: What broke down in its drafter, after which it was decoded plainly; else "".
    """

    index: int
    tokens: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    stats: Mapping[str, Any]
    fault: str = ""
