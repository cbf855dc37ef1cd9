"""OpenAI's responses, `/v1/responses`. Nothing is stored: each request contains its whole chat."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec_server.apis.base import COMMENT, Lines, ends_of, event, now
from mlxspec_server.asking import Ask, ask_of
from mlxspec_server.body import Body
from mlxspec_server.figures import timings_of
from mlxspec_server.pieces import Piece
from mlxspec_server.refusals import Refusal
from mlxspec_server.tools.calls import ToolCall
from mlxspec_server.turns import Chat, Turn, text_of
from mlxspec_server.writing import Writing

_ELSEWHERE = ("_call", "_call_output", "_list_tools", "_approval_request", "_approval_response")
_LOGPROBS = "message.output_text.logprobs"
_ECHO = {
    **{"instructions": None, "max_output_tokens": None, "parallel_tool_calls": True},
    **{"tool_choice": "auto", "tools": []},
}
_ECHO_OBJECTS: dict[str, dict[str, Any]] = {
    "metadata": {},
    "reasoning": {"effort": None, "summary": None},
    "text": {"format": {"type": "text"}},
}


def response_ask(body: Body, defaults: GenerationParams) -> Ask:
    """Return the settings that a response asks for."""
    body.refuse("prompt", "nothing is stored: send its text as instructions")
    body.refuse("n", "a request has one response", allowed=(1,))
    if body.get("top_logprobs") or _LOGPROBS in body.items("include"):
        why = f"{_LOGPROBS} is not in this API: ask /v1/chat/completions for logprobs"
        raise Refusal(400, why, "include")
    return ask_of(body, defaults)


def echo_of(body: Body) -> dict[str, Any]:
    """Return the fields of the request that a response repeats, with defaults for absent ones."""
    found = {name: body.get(name) if name in body else usual for name, usual in _ECHO.items()}
    for name, usual in _ECHO_OBJECTS.items():
        found[name] = {**usual, **body.object(name)}
    return found


def response_chat(body: Body) -> Chat:
    """Return the chat, the instructions first."""
    stated = body.get("input")
    items = [{"role": "user", "content": stated}] if isinstance(stated, str) else stated
    if not isinstance(items, list) or not items:
        raise Refusal(400, "input must be a text, or a list of items", "input")
    system = {"role": "system", "content": body.text("instructions")}
    messages = [system] if "instructions" in body else []
    return Chat.of([*messages, *(turn for item in items for turn in _item(item))], "input")


def _item(item: Any) -> list[Turn]:
    """Return the message of an item; none for what OpenAI's own servers did for a reply."""
    if not isinstance(item, Mapping):
        raise Refusal(400, "an item of input must be an object", "input")
    kind = str(item.get("type", "message"))
    if kind == "message" and isinstance(item.get("role"), str):
        return [{"role": item["role"], "content": item.get("content")}]
    if kind in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments", {"input": item.get("input", "")})
        function = {"name": item.get("name"), "arguments": arguments}
        call = {"id": item.get("call_id"), "function": function}
        return [{"role": "assistant", "tool_calls": [call]}]
    if kind in ("function_call_output", "custom_tool_call_output"):
        result = {"role": "tool", "content": item.get("output")}
        return [result | {"tool_call_id": item.get("call_id")}]
    if kind == "reasoning":
        thoughts = text_of(item.get("content"))  # "" if encrypted
        return [{"role": "assistant", "reasoning_content": thoughts}] if thoughts else []
    if not kind.endswith(_ELSEWHERE):
        raise Refusal(400, f"input may not hold an item of type {kind[:40]}", "input")
    return []


class ResponsesReply:
    """Writes a reply as a response."""

    def __init__(self, writing: Writing, *, echo: Mapping[str, Any]) -> None:
        self._writing, self._created, self._echo = writing, now(), echo
        self._pieces: list[Piece] = []
        self._number = -1  # sequence number of the event
        self._items: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None

    def begin(self) -> Lines:
        response = self._response("in_progress")
        names = ("response.created", "response.in_progress")
        return [self._event(name, response=response) for name in names]

    def tell(self, piece: Piece) -> Lines:
        self._pieces.append(piece)
        if piece.kind == "end":
            return self._close()
        if piece.kind == "call" and piece.call:
            return [*self._close(), *self._begin_call(piece.call)]
        if piece.kind == "arguments":
            return [self._more_arguments(piece.text)]
        lines = [] if self._open and self._open["of"] == piece.kind else self._begin_item(piece)
        if not piece.text or self._open is None:
            return lines
        self._open["text"] += piece.text
        name = _delta_name(piece.kind)
        return [*lines, self._part_event(f"{name}.delta", delta=piece.text)]

    def end(self) -> Lines:
        whole = self._response(*self._finish())
        name = "response.completed" if whole["status"] == "completed" else "response.incomplete"
        return [self._event(name, response=whole)]

    def fail(self, refusal: Refusal) -> Lines:
        code, message = refusal.code or refusal.kind, str(refusal)
        return [self._event("error", code=code, message=message, param=None)]

    def keep_alive(self) -> Lines:
        return [COMMENT]

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        for piece in pieces:
            self.tell(piece)
        return self._response(*self._finish())

    def _finish(self) -> tuple[str, Piece]:
        (end,) = ends_of(self._pieces)
        is_whole = end.reason not in ("length", "context")
        return "completed" if is_whole else "incomplete", end

    def _response(self, status: str, end: Piece | None = None) -> dict[str, Any]:
        params, loaded = self._writing.ask.params, self._writing.loaded
        found: dict[str, Any] = {
            "id": f"resp_{self._writing.name}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": loaded.offer.name,
            "output": [dict(item) for item in self._items],
            "error": None,
            "incomplete_details": None,
            "temperature": params.sampling.temperature,
            "top_p": params.sampling.top_p,
            "background": False,
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            **self._echo,
        }
        if status == "incomplete":
            found["incomplete_details"] = {"reason": "max_output_tokens"}
        if end is not None:
            found |= {"usage": _usage(end.stats), "timings": timings_of(end.stats, loaded.drafter)}
        return found

    def _begin_item(self, piece: Piece) -> Lines:
        lines = self._close()
        is_thought = piece.kind == "reasoning"
        name = f"{'rs' if is_thought else 'msg'}_{self._writing.name}_{len(self._items)}"
        self._open = {"of": piece.kind, "id": name, "text": ""}
        item: dict[str, Any] = {"id": name, "status": "in_progress"}
        item |= (
            {"type": "reasoning", "summary": []}
            if is_thought
            else {"type": "message", "role": "assistant", "content": []}
        )
        at = len(self._items)
        lines.append(self._event("response.output_item.added", output_index=at, item=item))
        part = _part(piece.kind, "")
        return [*lines, self._part_event("response.content_part.added", part=part)]

    def _close(self) -> Lines:
        if self._open is None:
            return []
        if self._open["of"] == "call":
            return self._close_call()
        kind, text, name = self._open["of"], self._open["text"], self._open["id"]
        part = _part(kind, text)
        item = {"id": name, "status": "completed", "content": [part]}
        item |= (
            {"type": "reasoning", "summary": []}
            if kind == "reasoning"
            else {"type": "message", "role": "assistant"}
        )
        lines = [
            self._part_event(f"{_delta_name(kind)}.done", text=text),
            self._part_event("response.content_part.done", part=part),
        ]
        at = len(self._items)
        lines.append(self._event("response.output_item.done", output_index=at, item=item))
        self._items.append(item)
        self._open = None
        return lines

    def _begin_call(self, call: ToolCall) -> Lines:
        at, name = len(self._items), f"fc_{self._writing.name}_{len(self._items)}"
        item = {"type": "function_call", "id": name, "call_id": call.id, "name": call.name}
        self._open = {"of": "call", "id": name, "text": "", "item": item}
        begun = {**item, "arguments": "", "status": "in_progress"}
        lines = [self._event("response.output_item.added", output_index=at, item=begun)]
        return [*lines, self._more_arguments(call.arguments)] if call.arguments else lines

    def _more_arguments(self, text: str) -> str:
        assert self._open is not None, "arguments belong to a call"
        self._open["text"] += text
        return self._call_event("delta", delta=text)

    def _close_call(self) -> Lines:
        assert self._open is not None, "a call was begun"
        item = {**self._open["item"], "arguments": self._open["text"], "status": "completed"}
        done = self._call_event("done", arguments=item["arguments"], name=item["name"])
        at = len(self._items)
        self._items.append(item)
        self._open = None
        return [done, self._event("response.output_item.done", output_index=at, item=item)]

    def _call_event(self, kind: str, **fields: Any) -> str:
        assert self._open is not None, "a call was begun"
        where = {"item_id": self._open["id"], "output_index": len(self._items)}
        return self._event(f"response.function_call_arguments.{kind}", **where, **fields)

    def _part_event(self, name: str, /, **fields: Any) -> str:
        assert self._open is not None, "a part belongs to an item"
        where = {"item_id": self._open["id"], "output_index": len(self._items)}
        if name.startswith("response.output_text"):
            fields["logprobs"] = []
        return self._event(name, **where, content_index=0, **fields)

    def _event(self, name: str, /, **fields: Any) -> str:
        self._number += 1
        return event({"type": name, "sequence_number": self._number, **fields}, name)


def _delta_name(kind: str) -> str:
    return "response.reasoning_text" if kind == "reasoning" else "response.output_text"


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(stats: Mapping[str, Any]) -> dict[str, Any]:
    read, written = stats["prompt_tokens"], stats["generated_tokens"]
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": stats["reused_tokens"]},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": stats["reasoning_tokens"]},
        "total_tokens": read + written,
    }
