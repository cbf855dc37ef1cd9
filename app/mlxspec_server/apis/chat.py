"""OpenAI's chat completions: `/v1/chat/completions`."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec_server.apis.base import Lines, OpenAICompletions, ends_of, event, reason_of, said
from mlxspec_server.asking import MOST_LOGPROBS, ask_of
from mlxspec_server.body import Body, Refusal
from mlxspec_server.pieces import Piece, ToolCall, calls_of
from mlxspec_server.tools.choice import ToolChoice, function_tools
from mlxspec_server.turns import Chat


def chosen_tools(body: Body) -> ToolChoice:
    """Return the tools that the model may or must call."""
    tools = function_tools(body.items("tools"), "parameters")
    is_parallel = body.is_on("parallel_tool_calls", True)
    return ToolChoice.of(tools, body.get("tool_choice"), is_parallel=is_parallel)


def _chat_of(body: Body) -> Chat:
    """Return the chat. A final assistant message is continued unless a field forbids it."""
    goes_on = body.is_on("continue_final_message", not body.is_on("add_generation_prompt"))
    chat = Chat.of(body.items("messages"), goes_on=goes_on)
    is_wanted = not body.is_on("add_generation_prompt", True) or "continue_final_message" in body
    if goes_on and is_wanted and not chat.goes_on:
        message = "the last message must be one of the assistant, for the reply to go on with"
        raise Refusal(400, message, "messages")
    return chat


class ChatCompletion(OpenAICompletions):
    """A request for chat completions."""

    kind, chunk = "chatcmpl", "chat.completion.chunk"

    def __init__(self, body: Body, defaults: GenerationParams) -> None:
        num_logprobs = None
        if body.is_on("logprobs"):
            num_logprobs = body.whole("top_logprobs", 0, 0, MOST_LOGPROBS)
        elif body.get("top_logprobs"):
            raise Refusal(400, "top_logprobs needs logprobs: true", "top_logprobs")
        own = {"chat": _chat_of(body), "choice": chosen_tools(body)}
        ask = ask_of(body, defaults, num_logprobs=num_logprobs, **own)
        super().__init__(ask, tells_usage=body.part("stream_options").is_on("include_usage"))
        self._num_calls: dict[int, int] = {}

    def begin(self) -> Lines:
        count = self.ask.num_replies
        return [self._chunk(index, {"role": "assistant", "content": ""}) for index in range(count)]

    def tell(self, piece: Piece) -> Lines:
        delta: dict[str, Any] = {}
        if piece.kind == "end":
            self._ends.append(piece)
            return [self._chunk(piece.index, delta, piece, self._reason(piece))]
        if piece.kind == "call" and piece.call:
            number = self._num_calls.get(piece.index, 0)
            self._num_calls[piece.index] = number + 1
            delta = {"tool_calls": [{"index": number, **_call(piece.call)}]}
        elif piece.kind == "arguments":
            number = self._num_calls[piece.index] - 1
            delta = {"tool_calls": [{"index": number, "function": {"arguments": piece.text}}]}
        else:
            delta["reasoning_content" if piece.kind == "reasoning" else "content"] = piece.text
        return [self._chunk(piece.index, delta, piece)]

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        count = self.ask.num_replies
        choices = [self._choice(i, [p for p in pieces if p.index == i]) for i in range(count)]
        return self.head("chat.completion", choices=choices) | self.figures(pieces)

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
        if self.ask.num_logprobs is None:
            return {"logprobs": None}
        rows = [self.logprob_row(row) for piece in pieces for row in piece.logprobs]
        return {"logprobs": {"content": rows}}

    def _chunk(
        self, index: int, delta: Mapping[str, Any], piece: Piece | None = None, reason: Any = None
    ) -> str:
        choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": reason}
        if piece is not None and piece.logprobs:
            choice |= self._logprobs([piece])
        return event(self.head(self.chunk, choices=[choice]))


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
