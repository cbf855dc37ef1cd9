"""Anthropic's messages: `/v1/messages` and its token counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec.text.stream import TextStream
from mlxspec_server.apis.base import (
    Api,
    Lines,
    ends_of,
    event,
    hash_of,
    reason_of,
    said,
    timings_of,
)
from mlxspec_server.asking import ask_of
from mlxspec_server.body import Body, Refusal
from mlxspec_server.pieces import Piece, ToolCall, calls_of
from mlxspec_server.tools.choice import ToolChoice, function_tools
from mlxspec_server.turns import Chat, Turn, arguments_of

_ROLES = ("user", "assistant", "system", "developer")
_ELSEWHERE = ("redacted_thinking", "server_tool_use", "mcp_tool_use", "container_upload")
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_DELTAS = {
    "text": ("text", "text"),
    "reasoning": ("thinking", "thinking"),
    "arguments": ("input_json", "partial_json"),
}
"""The kind of a delta and the name of its text, by kind of piece."""


def message_tools(body: Body) -> ToolChoice:
    """Return the tools that the model may or must call."""
    tools = function_tools(body.items("tools"), "input_schema", "custom")
    choice = body.part("tool_choice")
    kind = choice.text("type", "auto")
    named = {"any": "required", "tool": {"name": choice.get("name")}}.get(kind, kind)
    is_parallel = not choice.is_on("disable_parallel_tool_use")
    return ToolChoice.of(tools, named, is_parallel=is_parallel)


def message_chat(body: Body) -> Chat:
    """Return the chat, the system prompt first."""
    messages = [{"role": "system", "content": body.get("system")}] if "system" in body else []
    stated = body.items("messages")
    if not stated:
        raise Refusal(400, "messages must be a list with at least one message", "messages")
    for message in stated:
        if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
            raise Refusal(400, f"a message must have the role {', '.join(_ROLES)}", "messages")
        messages += _blocks(message["role"], message.get("content"))
    return Chat.of(messages)


def _blocks(role: str, content: Any) -> list[Turn]:
    """Return the messages of one turn; each tool result becomes its own message.

    Blocks that record what Anthropic's own servers did for an earlier reply are left out.
    """
    if not isinstance(content, list):
        return [{"role": role, "content": content}]
    results: list[Turn] = []
    message: Turn = {"role": role, "content": [], "tool_calls": []}
    for block in content:
        kind = str(block.get("type")) if isinstance(block, Mapping) else ""
        if kind == "tool_result":
            result = {"role": "tool", "content": block.get("content")}
            results.append(result | {"tool_call_id": block.get("tool_use_id")})
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": block.get("input")}
            message["tool_calls"].append({"id": block.get("id"), "function": function})
        elif kind == "thinking":
            message["reasoning_content"] = block.get("thinking")
        elif kind not in _ELSEWHERE and not kind.endswith("_tool_result"):
            message["content"].append(block)
    has_more = message["content"] or message["tool_calls"] or not results
    return [*results, *([message] if has_more else [])]


class Message(Api):
    """A request for a message."""

    def __init__(self, body: Body, defaults: GenerationParams) -> None:
        if "max_tokens" not in body:
            raise Refusal(400, "max_tokens is required", "max_tokens")
        body.refuse("n", "a request has one message", allowed=(1,))
        for name in ("logprobs", "top_logprobs"):
            body.refuse(name, "ask /v1/chat/completions", allowed=(False, 0))
        # Reasoning of earlier turns is never read, so clearing it changes nothing.
        for edit in body.part("context_management").items("edits"):
            kind = edit.get("type") if isinstance(edit, Mapping) else edit
            if not (isinstance(kind, str) and kind.startswith("clear_thinking")):
                why = "context_management is not supported: the server reads all of a request"
                raise Refusal(400, why, "context_management")
        own = {"chat": message_chat(body), "choice": message_tools(body)}
        super().__init__(ask_of(body, defaults, **own))
        self._index, self._kind = -1, ""
        self._has_calls = False

    def begin(self) -> Lines:
        usage = {"input_tokens": self.writing.num_prompt_tokens, "output_tokens": 0}
        message = {**self._head(), "content": [], "stop_reason": None, "usage": usage}
        return [_event("message_start", message=message)]

    def tell(self, piece: Piece) -> Lines:
        if piece.kind == "end":
            return self._close()
        lines: Lines = []
        text = piece.text
        if piece.call is not None:
            lines = self._open("arguments", {**_use(piece.call), "input": {}})
            text, self._has_calls = piece.call.arguments, True
        elif not text:
            return []
        elif piece.kind != self._kind:
            lines = self._open(piece.kind, _block(_DELTAS[piece.kind][1], ""))
        kind, field = _DELTAS[self._kind]
        delta = {"type": f"{kind}_delta", field: text}
        return [*lines, _event("content_block_delta", index=self._index, delta=delta)]

    def end(self, ends: Sequence[Piece]) -> Lines:
        (end,) = ends
        last = _event("message_delta", delta=self._why(end), **self._figures(end))
        return [last, _event("message_stop")]

    def fail(self, refusal: Refusal) -> Lines:
        return [_event("error", error=refusal.body("/v1/messages")["error"])]

    def keep_alive(self) -> Lines:
        return [_event("ping")]

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        for kind, name in (("reasoning", "thinking"), ("text", "text")):
            if text := said(pieces, kind):
                content.append(_block(name, text))
        for call in calls_of(pieces):
            found = arguments_of({"arguments": call.arguments})  # stays a text if cut off
            content.append({**_use(call), "input": found if isinstance(found, dict) else {}})
            self._has_calls = True
        (end,) = ends_of(pieces)
        return {**self._head(), "content": content, **self._why(end), **self._figures(end)}

    def _head(self) -> dict[str, Any]:
        name, model = f"msg_{self.writing.name}", self.writing.loaded.offer.name
        return {"id": name, "type": "message", "role": "assistant", "model": model}

    def _why(self, end: Piece) -> dict[str, Any]:
        reason = _REASONS[reason_of(end, self._has_calls)]
        tokenizer = self.writing.loaded.engine.tokenizer
        stream = TextStream(tokenizer.token_bytes, self.ask.params.stop, tokenizer.special)
        if reason == "end_turn" and end.reason == "stop":
            for token in end.tokens:
                stream.push(token)
        if stream.ended_by:
            reason = "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": stream.ended_by or None}

    def _figures(self, end: Piece) -> dict[str, Any]:
        cached = end.stats["reused_tokens"]
        usage = {
            "input_tokens": end.stats["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": end.stats["generated_tokens"],
        }
        timings = timings_of(end.stats, self.writing.loaded.drafter)
        return {"usage": usage, "timings": timings, **hash_of(end)}

    def _open(self, kind: str, block: dict[str, Any]) -> Lines:
        lines = self._close()
        self._index, self._kind = self._index + 1, kind
        return [*lines, _event("content_block_start", index=self._index, content_block=block)]

    def _close(self) -> Lines:
        if not self._kind:
            return []
        self._kind = ""
        return [_event("content_block_stop", index=self._index)]


def _event(name: str, /, **fields: Any) -> str:
    return event({"type": name, **fields}, name)


def _block(name: str, text: str) -> dict[str, Any]:
    signature = {"signature": ""} if name == "thinking" else {}
    return {"type": name, name: text, **signature}


def _use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name}
