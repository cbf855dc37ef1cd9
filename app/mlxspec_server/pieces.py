"""Pieces of a reply, made from its events; every API writes these."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from mlxspec.trace.events import Channel, Event, FinishReason, GenerationFinished
from mlxspec_server.tools.calls import ToolCall
from mlxspec_server.tools.splitter import Part, ToolSplitter


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
class Piece:
    """A part of a reply.

    Attributes:
        index: Which of the replies to the request.
        kind: "arguments" belong to the call before them.
        text: "" for a call.
        call: The call with its arguments so far.
        logprobs: Of the tokens since the previous piece.
        reason: Set at the end, as are `stats` and `tokens`.
        tokens: All tokens of the reply, those of a stop string included.
    """

    index: int
    kind: Literal["text", "reasoning", "call", "arguments", "end"]
    text: str = ""
    call: ToolCall | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    reason: FinishReason = "stop"
    stats: Mapping[str, Any] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()


class ReplyPieces:
    """Makes the pieces of one reply."""

    def __init__(
        self, index: int, splitter: ToolSplitter | None, marks: Mapping[int, str] | None = None
    ) -> None:
        """Start a reply.

        `splitter` finds tool calls; None if the request has no tools. `marks` holds the texts of
        special tokens that mark calls, by token.
        """
        self._index, self._splitter = index, splitter
        self._marks = marks or {}
        self._channel: Channel = "answer"
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []  # of tokens whose text is held back

    def of(self, event: Event, logprobs: Sequence[TokenLogprob]) -> list[Piece]:
        """Return the pieces of an event; few events other than rounds have any."""
        found: list[Piece] = []
        rows = iter(logprobs)
        for token in getattr(event, "emit", ()):
            self._tokens.append(token.token)
            self._logprobs += islice(rows, 1)
            if token.channel != "mark":
                self._channel = token.channel
                said = self._said(token.text + self._marks.get(token.token, ""))
                found += self._with_logprobs(said)
        if isinstance(event, GenerationFinished):
            last = self._said(event.text)
            if self._splitter is not None:
                rest = self._splitter.finish(is_cut=event.reason != "stop")
                last += [self._piece(part) for part in rest]
            tokens = tuple(self._tokens)
            end = Piece(self._index, "end", reason=event.reason, stats=event.stats, tokens=tokens)
            found += self._with_logprobs([*last, end])
        return found

    def _with_logprobs(self, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces; the first one gets the logprobs of the tokens up to its text."""
        if not pieces or not self._logprobs:
            return pieces
        told, self._logprobs = tuple(self._logprobs), []
        return [replace(pieces[0], logprobs=told), *pieces[1:]]

    @property
    def is_over(self) -> bool:
        """Whether no further text of the reply will be sent."""
        return self._splitter is not None and self._splitter.is_over

    def _said(self, text: str) -> list[Piece]:
        if not text:
            return []
        if self._channel == "reasoning":
            return [Piece(self._index, "reasoning", text)]
        if self._splitter is None:
            return [Piece(self._index, "text", text)]
        return [self._piece(part) for part in self._splitter.push(text)]

    def _piece(self, part: Part) -> Piece:
        if isinstance(part, str):
            return Piece(self._index, "text", part)
        if isinstance(part, ToolCall):
            return Piece(self._index, "call", call=part)
        return Piece(self._index, "arguments", part.text)


def calls_of(pieces: Iterable[Piece]) -> list[ToolCall]:
    """Return the complete calls of a reply."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if piece.call is not None:
            calls.append(piece.call)
        elif piece.kind == "arguments":
            calls[-1] = replace(calls[-1], arguments=calls[-1].arguments + piece.text)
    return calls
