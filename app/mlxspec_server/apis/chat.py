"""OpenAI's chat completions: `/v1/chat/completions`."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec_server.apis.base import (
    COMMENT,
    DONE,
    Lines,
    ends_of,
    event,
    failure,
    figures_of,
    head_of,
    logprob_row,
    reason_of,
    said,
)
from mlxspec_server.asking import Ask, ask_of
from mlxspec_server.body import Body
from mlxspec_server.pieces import Piece, calls_of
from mlxspec_server.refusals import Refusal
from mlxspec_server.tools.calls import ToolCall
from mlxspec_server.tools.choice import ToolChoice, function_tools
from mlxspec_server.turns import Chat
from mlxspec_server.writing import Writing

MOST_LOGPROBS = 20


def chat_ask(body: Body, defaults: GenerationParams) -> Ask:
    """Return the settings that a chat completion asks for."""
    num_logprobs = None
    if body.is_on("logprobs"):
        num_logprobs = body.whole("top_logprobs", 0, 0, MOST_LOGPROBS)
    elif body.get("top_logprobs"):
        raise Refusal(400, "top_logprobs needs logprobs: true", "top_logprobs")
    return ask_of(body, defaults, num_logprobs=num_logprobs)


def chat_turns(body: Body) -> Chat:
    """Return the chat. A final assistant message is continued unless a field forbids it."""
    goes_on = body.is_on("continue_final_message", not body.is_on("add_generation_prompt"))
    chat = Chat.of(body.items("messages"), goes_on=goes_on)
    is_wanted = not body.is_on("add_generation_prompt", True) or "continue_final_message" in body
    if goes_on and is_wanted and not chat.goes_on:
        message = "the last message must be one of the assistant, for the reply to go on with"
        raise Refusal(400, message, "messages")
    return chat


def chosen_tools(body: Body) -> ToolChoice:
    """Return the tools that the model may or must call.

    Raises:
        Refusal: A tool is invalid, or the choice is unknown.
    """
    tools = function_tools(body.items("tools"), "parameters")
    is_parallel = body.is_on("parallel_tool_calls", True)
    return ToolChoice.of(tools, body.get("tool_choice"), is_parallel=is_parallel)


class ChatCompletion:
    """Writes the replies to one request as chat completions."""

    def __init__(self, writing: Writing, *, tells_usage: bool) -> None:
        self._writing, self._tells_usage = writing, tells_usage
        self._head = head_of(writing, "chatcmpl")
        self._ends: list[Piece] = []
        self._num_calls: dict[int, int] = {}

    def begin(self) -> Lines:
        count = self._writing.ask.num_replies
        return [self._chunk(index, {"role": "assistant", "content": ""}) for index in range(count)]

    def tell(self, piece: Piece) -> Lines:
        if piece.kind == "end":
            self._ends.append(piece)
            last = self._chunk(piece.index, {}, piece, reason=self._reason(piece))
            return [last]
        if piece.kind == "call" and piece.call:
            number = self._num_calls.get(piece.index, 0)
            self._num_calls[piece.index] = number + 1
            delta: dict[str, Any] = {"tool_calls": [{"index": number, **_call(piece.call)}]}
        elif piece.kind == "arguments":
            number = self._num_calls[piece.index] - 1
            more = {"index": number, "function": {"arguments": piece.text}}
            delta = {"tool_calls": [more]}
        else:
            name = "reasoning_content" if piece.kind == "reasoning" else "content"
            delta = {name: piece.text}
        return [self._chunk(piece.index, delta, piece)]

    def end(self) -> Lines:
        lines = []
        if self._tells_usage:
            told = {
                "object": "chat.completion.chunk",
                "choices": [],
                **figures_of(self._writing, self._ends),
            }
            lines = [event(self._head | told)]
        return [*lines, DONE]

    def fail(self, refusal: Refusal) -> Lines:
        return failure(refusal)

    def keep_alive(self) -> Lines:
        return [COMMENT]

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        count = self._writing.ask.num_replies
        choices = [self._choice(i, [p for p in pieces if p.index == i]) for i in range(count)]
        body = self._head | {"object": "chat.completion", "choices": choices}
        return body | figures_of(self._writing, pieces)

    def _choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": said(pieces, "text")}
        if reasoning := said(pieces, "reasoning"):
            message["reasoning_content"] = reasoning
        if calls := [_call(call) for call in calls_of(pieces)]:
            message["tool_calls"] = calls
            message["content"] = message["content"] or None
            self._num_calls[index] = len(calls)
        (end,) = ends_of(pieces)
        choice = {"index": index, "message": message, "finish_reason": self._reason(end)}
        return choice | self._logprobs(pieces)

    def _reason(self, end: Piece) -> str:
        return reason_of(end, end.index in self._num_calls)

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        if self._writing.ask.num_logprobs is None:
            return {"logprobs": None}
        rows = [logprob_row(self._writing, row) for piece in pieces for row in piece.logprobs]
        return {"logprobs": {"content": rows}}

    def _chunk(
        self, index: int, delta: Mapping[str, Any], piece: Piece | None = None, reason: Any = None
    ) -> str:
        choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": reason}
        if piece is not None and piece.logprobs:
            choice |= self._logprobs([piece])
        return event(self._head | {"object": "chat.completion.chunk", "choices": [choice]})


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
