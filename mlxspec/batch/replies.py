"""The result of a batch: one finished reply per prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlxspec.trace.events import FinishReason


@dataclass(frozen=True)
class BatchReply:
    """A finished reply.

    Attributes:
        index: Index of its prompt, counted from 0.
        tokens: Emitted tokens, including the stop token.
        text: Their text, without a stop string.
        reasoning: The text between the marks of reasoning.
        answer: The text outside of these marks.
        finish_reason: "stop", "length", "context", "cancelled", "repeating" or "error".
        stats: The figures of `GenerationStats.as_dict`; times are those of the whole batch while
            this sequence was in it.
        fault: Why its drafter failed, after which all rounds were plain; else "".
        error: The error that ended the reply if `finish_reason` is "error": a grammar that cannot
            continue, or an exception of a function of the caller. Tokens and text are those before
            it.
    """

    index: int
    tokens: tuple[int, ...]
    text: str
    reasoning: str
    answer: str
    finish_reason: FinishReason | Literal["error"]
    stats: Mapping[str, Any]
    fault: str = ""
    error: Exception | None = None

    def raise_error(self) -> None:
        """Raise the error that ended the reply, if there is one."""
        if self.error is not None:
            raise self.error
