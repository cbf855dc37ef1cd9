"""OpenAI's completions: of chats, `/v1/chat/completions`, and of plain text, `/v1/completions`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from mlxspec import __version__
from mlxspec.params import GenerationParams
from mlxspec_server.apis.base import (
    Api,
    Lines,
    Stats,
    ends_of,
    event,
    hash_of,
    reason_of,
    said,
    timings_of,
)
from mlxspec_server.asking import MOST_LOGPROBS, Ask, ask_of
from mlxspec_server.body import Body, Refusal
from mlxspec_server.pieces import Piece, TokenLogprob, ToolCall, calls_of
from mlxspec_server.tools.choice import ToolChoice, function_tools
from mlxspec_server.turns import Chat


class OpenAICompletions(Api):
    """What both kinds of completions have in common."""

    kind: ClassVar[str]  # the start of an id
    chunk: ClassVar[str]  # the type of a document of a stream

    def __init__(self, ask: Ask, *, tells_usage: bool) -> None:
        super().__init__(ask)
        self._tells_usage = tells_usage

    def end(self, ends: Sequence[Piece]) -> Lines:
        usage = [event(self.head(self.chunk, choices=[]) | self.figures(ends))]
        return [*(usage if self._tells_usage else []), "data: [DONE]\n\n"]

    def fail(self, refusal: Refusal) -> Lines:
        return [event(refusal.body(""))]

    def head(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the fields that every document repeats, and others."""
        own = {"id": f"{self.kind}-{self.writing.name}", "created": self.created, "object": kind}
        own |= {"model": self.writing.loaded.offer.name}
        return own | {"system_fingerprint": f"mlxspec-{__version__}"} | fields

    def figures(self, pieces: Iterable[Piece]) -> dict[str, Any]:
        """Return `usage` and `timings` of all replies."""
        stats = [end.stats for end in ends_of(pieces)]
        has_prediction = self.ask.params.prediction is not None
        usage = usage_of(stats, self.ask.num_prompts, has_prediction=has_prediction)
        return {"usage": usage, "timings": timings_of(stats[0], self.writing.loaded.drafter)}

    def logprob_row(self, found: TokenLogprob) -> dict[str, Any]:
        rows = [
            {"token": raw.decode("utf-8", "replace"), "logprob": _finite(logprob), "bytes": [*raw]}
            for token, logprob in ((found.token, found.logprob), *found.top)
            for raw in [self.writing.loaded.engine.tokenizer.token_bytes(token)]
        ]
        return rows[0] | {"top_logprobs": rows[1:]}


def usage_of(stats: Sequence[Stats], num_prompts: int, *, has_prediction: bool) -> dict[str, Any]:
    """Return the `usage` of OpenAI's completions for all replies to a request, in order.

    Predicted tokens appear only if the client sent a prediction. Our own drafts are not the
    client's predictions; `timings` reports them.
    """
    firsts = stats[:: len(stats) // num_prompts]  # each prompt counts once
    prompt = sum(one["prompt_tokens"] for one in firsts)
    written = sum(one["generated_tokens"] for one in stats)
    details = {"reasoning_tokens": sum(one["reasoning_tokens"] for one in stats)}
    if has_prediction:
        for name in ("accepted_prediction_tokens", "rejected_prediction_tokens"):
            details[name] = sum(one[name] for one in stats)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(one["reused_tokens"] for one in firsts)},
        "completion_tokens_details": details,
    }


def _finite(logprob: float) -> float:
    """Return a logprob that JSON can write: that of a forbidden token is minus infinity."""
    return max(logprob, -9999.0)


# ---- of chats --------------------------------------------------------------------------------


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
        return choice | self._logprobs(pieces) | hash_of(end)

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
        if piece is not None and piece.kind == "end":
            choice |= hash_of(piece)
        return event(self.head(self.chunk, choices=[choice]))


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


# ---- of plain text ----------------------------------------------------------------------------


class Completion(OpenAICompletions):
    """A request for completions: reasoning and answer are one text."""

    kind, chunk = "cmpl", "text_completion"

    def __init__(self, body: Body, defaults: GenerationParams) -> None:
        num_logprobs, prompt = None, body.get("prompt")
        if "logprobs" in body and body.get("logprobs") is not False:
            num_logprobs = body.whole("logprobs", 0, 0, MOST_LOGPROBS)
        is_list = isinstance(prompt, list) and all(isinstance(one, str | list) for one in prompt)
        prompts = prompt if is_list and prompt else [prompt]  # not yet checked
        ask = ask_of(body, defaults, num_logprobs=num_logprobs, prompts=prompts)
        ask = replace(ask, num_replies=ask.num_replies * len(prompts))
        super().__init__(ask, tells_usage=body.part("stream_options").is_on("include_usage"))
        self._lengths: dict[int, int] = {}  # characters sent of each reply

    def tell(self, piece: Piece) -> Lines:
        is_end = piece.kind == "end"
        reason = reason_of(piece) if is_end else None
        choice = {"index": piece.index, "text": piece.text, "finish_reason": reason}
        choice["logprobs"] = self._logprobs([piece])
        choice |= hash_of(piece) if is_end else {}
        return [event(self.head(self.chunk, choices=[choice]))]

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        choices = []
        for end in ends_of(pieces):
            own = [piece for piece in pieces if piece.index == end.index]
            choice = {"index": end.index, "text": "".join(piece.text for piece in own)}
            choice |= {"finish_reason": reason_of(end), "logprobs": self._logprobs(own)}
            choices.append(choice | hash_of(end))
        return self.head(self.chunk, choices=choices) | self.figures(pieces)

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if self.ask.num_logprobs is None:
            return None
        rows: list[TokenLogprob] = []
        offsets: list[int] = []
        token_bytes = self.writing.loaded.engine.tokenizer.token_bytes
        for piece in pieces:
            start = self._lengths.get(piece.index, 0)
            self._lengths[piece.index] = start + len(piece.text)
            before = ""
            for row in piece.logprobs:
                offsets.append(start + min(len(before), len(piece.text)))
                before += token_bytes(row.token).decode("utf-8", "replace")
            rows += piece.logprobs
        return {
            "tokens": [self._name(row.token) for row in rows],
            "token_logprobs": [_finite(row.logprob) for row in rows],
            "top_logprobs": [self._top(row) for row in rows],
            "text_offset": offsets,
        }

    def _top(self, row: TokenLogprob) -> dict[str, float]:
        found = {self._name(row.token): _finite(row.logprob)}
        for token, logprob in row.top:
            name = self._name(token)
            # Several tokens can have the same text: the drawn token gets the plain name, then the
            # most probable.
            key = f"token_id:{token}" if name in found and token != row.token else name
            found[key] = _finite(logprob)
        return found

    def _name(self, token: int) -> str:
        """Return the text of a token; its name or its bytes if it has no text of its own."""
        tokenizer = self.writing.loaded.engine.tokenizer
        raw = tokenizer.token_bytes(token)
        try:
            return raw.decode() or tokenizer.decode([token], keep_special=True)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
