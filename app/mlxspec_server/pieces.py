"""Pieces of a reply, as every API writes them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Literal

from mlxspec.trace.events import FinishReason


@dataclass(frozen=True)
class TokenLogprob:
    """The target's logprobs of a token.

    Attributes:
        logprob: After bias and penalties, before temperature and filters.
        top: The most probable tokens of this position, and their logprobs.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class ToolCall:
    """A call that the model makes.

    Attributes:
        arguments: JSON; "" if they follow piece by piece.
        id: Links the call with its result.
    """

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{token_hex(12)}")


@dataclass(frozen=True)
class Piece:
    """A part of a reply.

    Attributes:
        kind: "arguments" belong to the call before them.
        call: The call with its arguments so far.
        index: Which of the replies to the request.
        logprobs: Of the tokens since the previous piece.
        reason: Set at the end, as are `stats` and `tokens`.
        tokens: All tokens of the reply, those of a stop string included.
    """

    kind: Literal["text", "reasoning", "call", "arguments", "end"]
    text: str = ""
    call: ToolCall | None = None
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    reason: FinishReason = "stop"
    stats: Mapping[str, Any] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()


def calls_of(pieces: Iterable[Piece]) -> list[ToolCall]:
    """Return the complete calls of a reply."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if piece.call is not None:
            calls.append(piece.call)
        elif piece.kind == "arguments":
            calls[-1] = replace(calls[-1], arguments=calls[-1].arguments + piece.text)
    return calls
