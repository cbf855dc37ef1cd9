"""Pieces of a reply, as every API writes them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Literal

from mlxspec.trace.events import FinishReason


@dataclass(frozen=True)
class TokenLogprob:
    """The target's logprobs of a token, and of the most probable ones at its position."""

    token: int
    logprob: float  # after bias and penalties, before temperature and filters
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class ToolCall:
    """A call that the model makes; its `id` links it with its result."""

    name: str
    arguments: str  # JSON; "" if they follow piece by piece
    id: str = field(default_factory=lambda: f"call_{token_hex(12)}")


@dataclass(frozen=True)
class Piece:
    """A part of a reply; "arguments" belong to the call before them."""

    kind: Literal["text", "reasoning", "call", "arguments", "end"]
    text: str = ""
    call: ToolCall | None = None  # the call with its arguments so far
    index: int = 0  # which of the replies to the request
    logprobs: tuple[TokenLogprob, ...] = ()  # of the tokens since the previous piece
    reason: FinishReason = "stop"  # set at the end, as are `stats` and `tokens`
    stats: Mapping[str, Any] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()  # all tokens of the reply, those of a stop string included


def calls_of(pieces: Iterable[Piece]) -> list[ToolCall]:
    """Return the complete calls of a reply."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if piece.call is not None:
            calls.append(piece.call)
        elif piece.kind == "arguments":
            calls[-1] = replace(calls[-1], arguments=calls[-1].arguments + piece.text)
    return calls
