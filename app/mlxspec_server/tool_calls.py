"""Calls of tools in the text of a reply, read by mlx-lm's parsers of the models in use."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from secrets import token_hex
from typing import Any

from mlx_lm import tokenizer_utils

from mlxspec.tokenizer import Tokenizer


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for.

    Attributes:
        name: The function.
        arguments: Its arguments as JSON.
        id: Names the call, so that its result can be told.
    """

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{token_hex(12)}")


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes calls.

    Attributes:
        start: The mark before a call.
        end: The mark after it; "" where the end of the reply is one.
        parse: Reads the text between; may raise anything.
    """

    start: str
    end: str
    parse: Callable[[str, Any], Any]

    @staticmethod
    def of(tokenizer: Tokenizer) -> "ToolFormat | None":
        """Return the format of a model, None if mlx-lm has no parser for it."""
        kind = tokenizer_utils._infer_tool_parser(tokenizer.wrapped)
        if kind is None:
            return None
        module = import_module(f"mlx_lm.tool_parsers.{kind}")
        return ToolFormat(module.tool_call_start, module.tool_call_end, module.parse_tool_call)


class ToolSplitter:
    """Splits the text of a reply into text and calls, as it comes."""

    def __init__(self, format: ToolFormat, tools: Sequence[Mapping[str, Any]]) -> None:
        self._format, self._tools = format, list(tools)
        self._text, self._is_inside = "", False

    def push(self, text: str) -> list[str | ToolCall]:
        """Return what is complete now; a part of a mark is held back."""
        self._text += text
        found: list[str | ToolCall] = []
        while True:
            mark = self._format.end if self._is_inside else self._format.start
            before, is_there, after = self._text.partition(mark) if mark else (self._text, "", "")
            if not is_there:
                break
            found += self._calls(before) if self._is_inside else [before]
            self._text, self._is_inside = after, not self._is_inside
        if not self._is_inside:
            held = _held_back(self._text, self._format.start)
            ready = self._text[: len(self._text) - held]
            found.append(ready)
            self._text = self._text[len(ready) :]
        return [part for part in found if part]

    def finish(self) -> list[str | ToolCall]:
        """Return what is left at the end of the reply."""
        text, self._text = self._text, ""
        if self._is_inside:
            return self._calls(text)
        return [text] if text else []

    def _calls(self, text: str) -> list[str | ToolCall]:
        try:
            parsed = self._format.parse(text, self._tools)
            calls = parsed if isinstance(parsed, list) else [parsed]
            return [ToolCall(str(call["name"]), _json(call["arguments"])) for call in calls]
        except Exception:  # a model may write anything; what is no call is text
            return [f"{self._format.start}{text}{self._format.end}"]


def _json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _held_back(text: str, mark: str) -> int:
    """Return how many characters at the end of a text may begin a mark."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
