"""The pieces of a reply, as every API writes them, and how they are made of its events.

The text of a reply is split into text and tool calls while it arrives. Arguments that the model
writes as one JSON object are streamed. Any other call is parsed by mlx-lm once it is complete.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from secrets import token_hex
from typing import Any, Literal

from mlxspec.text.stream import overlap
from mlxspec.trace.events import Channel, Event, FinishReason, GenerationFinished
from mlxspec_server.tools.calls import ToolFormat
from mlxspec_server.tools.choice import ToolChoice

_NAME = "([^\"'\\s<>(){}\\[\\]]+)"
_OUTSIDE = re.compile(r"[^\s{}\[\]:,0-9a-zA-Z+.\-]")  # JSON has no such character outside a string


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


class ReplyPieces:
    """Makes the pieces of one reply; `format` is None if the request has no tools."""

    def __init__(self, index: int, format: ToolFormat | None, choice: ToolChoice) -> None:
        self._index = index
        self.splitter = ToolSplitter(format, choice) if format else None
        # The texts of special tokens that mark calls, by token.
        self._marks = {token: name for name, token in format.special.items()} if format else {}
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
            if self.splitter is not None:
                last += self.splitter.finish(is_cut=event.reason != "stop")
            tokens = tuple(self._tokens)
            end = Piece("end", reason=event.reason, stats=event.stats, tokens=tokens)
            found += self._with_logprobs([*last, end])
        return [replace(piece, index=self._index) for piece in found]

    def _with_logprobs(self, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces; the first one gets the logprobs of the tokens up to its text."""
        if not pieces or not self._logprobs:
            return pieces
        told, self._logprobs = tuple(self._logprobs), []
        return [replace(pieces[0], logprobs=told), *pieces[1:]]

    def _said(self, text: str) -> list[Piece]:
        if not text:
            return []
        if self._channel == "reasoning":
            return [Piece("reasoning", text)]
        return [Piece("text", text)] if self.splitter is None else self.splitter.push(text)


class ToolSplitter:
    """Splits the text of one reply."""

    def __init__(self, format: ToolFormat, choice: ToolChoice) -> None:
        self.is_over = False  # whether the only allowed call is complete: further text is dropped
        self._format, self._choice = format, choice
        self._has_one = not (choice.is_parallel or choice.demanded)  # else the grammar ensures it
        self._text, self._is_inside, self._is_behind_a_call = "", False, False
        self._streamed = _StreamedCalls(format)

    def push(self, text: str) -> list[Piece]:
        """Return the pieces that are complete now; the start of a mark is held back."""
        self._text += text
        found: list[Piece] = []
        while not self.is_over:  # each turn passes a mark
            if not (self._inside(found) if self._is_inside else self._outside(found)):
                break
        return [piece for piece in found if piece.text or piece.call]

    def finish(self, *, is_cut: bool = False) -> list[Piece]:
        """Return what is left at the end; an unfinished call of a reply that is cut is no text."""
        text, self._text = self._text, ""
        if self._is_inside:
            is_done = self._streamed.has_begun or (is_cut and self._format.end)
            found = [] if is_done else self._calls(text, "")
            return [piece for piece in found if not (is_cut and piece.kind == "text")]
        is_call = self._is_behind_a_call or self._choice.demanded
        is_lost = self.is_over or (is_cut and is_call)
        return [Piece("text", text)] if text and not is_lost else []

    def _outside(self, found: list[Piece]) -> bool:
        """Consume ready text; return whether a mark was passed."""
        if self._is_behind_a_call:  # white space between calls is dropped
            self._text = self._text.lstrip()
        before, is_there, after = self._text.partition(self._format.start)
        if is_there:
            found.append(Piece("text", before))
            self._text, self._is_inside = after, True
            self._streamed = _StreamedCalls(self._format)
            return True
        held = overlap(self._text, self._format.start)
        ready = self._text[: len(self._text) - held]
        found.append(Piece("text", ready))
        self._text = self._text[len(ready) :]
        self._is_behind_a_call = self._is_behind_a_call and not ready
        return False

    def _inside(self, found: list[Piece]) -> bool:
        found += self._streamed.read(self._text, has_one=self._has_one)
        if self._has_one and self._streamed.has_begun and not self._streamed.is_in_arguments:
            self.is_over = True
            return False
        end = self._format.end
        at = self._text.find(end, self._streamed.position) if end else -1
        if at < 0:  # also inside arguments, of which all text has been read
            return False
        calls = [] if self._streamed.has_begun else self._calls(self._text[:at], end)
        found += calls
        self._text, self._is_inside = self._text[at + len(end) :], False
        self._is_behind_a_call = not any(piece.kind == "text" for piece in calls)
        self.is_over = self._is_behind_a_call and self._has_one
        return True

    def _calls(self, text: str, end: str) -> list[Piece]:
        try:
            parsed = self._format.parse(text, list(self._choice.tools))
            calls = parsed if isinstance(parsed, list) else [parsed]
            calls = calls[:1] if self._has_one else calls
            found = [ToolCall(str(call["name"]), _json(call["arguments"])) for call in calls]
            return [Piece("call", call=call) for call in found]
        except Exception:  # a model may write anything; what does not parse is text
            return [Piece("text", f"{self._format.start}{text}{end}")]


class _StreamedCalls:
    """The calls between two marks, with streamed arguments."""

    def __init__(self, format: ToolFormat) -> None:
        self.position, self.has_begun, self.is_in_arguments = 0, False, False
        form = format.form
        self._first = self._next = None
        if form is not None and form.pairs is None:
            middle = _loose(form.middle)
            self._first = re.compile(
                _loose(form.before.removeprefix(format.start)) + _NAME + middle + r"(?=\{)"
            )
            if form.joint is not None:
                self._next = re.compile(_loose(form.joint) + _NAME + middle + r"(?=\{)")
        self._depth, self._is_in_text = 0, False

    def read(self, text: str, *, has_one: bool = False) -> list[Piece]:
        """Return what is new, given all text after the start mark, of the first call or of all."""
        found: list[Piece] = []
        while True:
            if not self.is_in_arguments and not self._begins(text, found):
                return found
            end = self._arguments_end(text)
            found.append(Piece("arguments", text[self.position : end]))
            self.position = end
            if self.is_in_arguments or has_one:
                return found

    def _begins(self, text: str, found: list[Piece]) -> bool:
        pattern = self._next if self.has_begun else self._first
        head = pattern.match(text, self.position) if pattern else None
        if head is None:
            return False
        found.append(Piece("call", call=ToolCall(head[1], "")))
        self.position, self.has_begun, self.is_in_arguments = head.end(), True, True
        self._depth, self._is_in_text, self._is_escaped = 0, False, False
        return True

    def _arguments_end(self, text: str) -> int:
        """Return where the arguments end, or the length so far; invalid JSON ends them too."""
        for at in range(self.position, len(text)):
            char = text[at]
            if self._is_in_text:
                self._is_in_text = self._is_escaped or char != '"'
                self._is_escaped = char == "\\" and not self._is_escaped
            elif char == '"':
                self._is_in_text = True
            elif _OUTSIDE.match(char):
                self.is_in_arguments = False
                return at
            else:
                self._depth += (char in "{[") - (char in "}]")
                if self._depth == 0:
                    self.is_in_arguments = False
                    return at + 1
        return len(text)


def _loose(text: str) -> str:
    """Return a pattern for a literal text in which any white space matches white space."""
    return r"\s*".join(map(re.escape, re.split(r"\s+", text)))


def _json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
