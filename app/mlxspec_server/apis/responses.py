"""OpenAI's responses, `/v1/responses`. Nothing is stored: each request contains its whole chat."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec_server.apis.base import Api, Lines, Stats, ends_of, event, hash_of, timings_of
from mlxspec_server.apis.completions import chosen_tools
from mlxspec_server.asking import ask_of
from mlxspec_server.body import Body, Refusal
from mlxspec_server.pieces import Piece
from mlxspec_server.turns import Chat, Turn, text_of

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
"""The fields of a request that a response repeats, with defaults for absent ones."""

_ITEMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "text": ("msg", {"type": "message", "role": "assistant"}, "output_text"),
    "reasoning": ("rs", {"type": "reasoning", "summary": []}, "reasoning_text"),
    "call": ("fc", {"type": "function_call"}, "function_call_arguments"),
}
"""The start of an item's id, its fields, and the name of its events, by kind of piece."""


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


class OpenAIResponse(Api):
    """A request for a response."""

    def __init__(self, body: Body, defaults: GenerationParams) -> None:
        body.refuse("prompt", "nothing is stored: send its text as instructions")
        body.refuse("n", "a request has one response", allowed=(1,))
        if body.get("top_logprobs") or _LOGPROBS in body.items("include"):
            why = f"{_LOGPROBS} is not in this API: ask /v1/chat/completions for logprobs"
            raise Refusal(400, why, "include")
        own = {"chat": response_chat(body), "choice": chosen_tools(body)}
        super().__init__(ask_of(body, defaults, **own))
        self._echo = {name: body.get(name) if name in body else _ECHO[name] for name in _ECHO}
        self._echo |= {name: {**_ECHO_OBJECTS[name], **body.object(name)} for name in _ECHO_OBJECTS}
        self._number = -1  # sequence number of the event
        self._items: list[dict[str, Any]] = []
        # The item that is being written: its kind and fields, and its text so far.
        self._kind, self._item, self._text = "", dict[str, Any](), ""

    def begin(self) -> Lines:
        response = self._response("in_progress")
        names = ("created", "in_progress")
        return [self._event(f"response.{name}", response=response) for name in names]

    def tell(self, piece: Piece) -> Lines:
        if piece.kind == "end":
            return self._close()
        lines, text = [], piece.text
        if piece.call is not None:
            call = {"call_id": piece.call.id, "name": piece.call.name}
            lines, text = self._open("call", call), piece.call.arguments
        elif piece.kind not in (self._kind, "arguments"):
            lines = self._open(piece.kind, {})
        self._text += text
        return [*lines, self._item_event("delta", delta=text)] if text else lines

    def end(self, ends: Sequence[Piece]) -> Lines:
        whole = self._finished(*ends)
        return [self._event(f"response.{whole['status']}", response=whole)]

    def fail(self, refusal: Refusal) -> Lines:
        code, message = refusal.code or refusal.kind, str(refusal)
        return [self._event("error", code=code, message=message, param=None)]

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        for piece in pieces:
            self.tell(piece)
        return self._finished(*ends_of(pieces))

    def _finished(self, end: Piece) -> dict[str, Any]:
        is_whole = end.reason not in ("length", "context")
        found = self._response("completed" if is_whole else "incomplete")
        if not is_whole:
            found["incomplete_details"] = {"reason": "max_output_tokens"}
        timings = timings_of(end.stats, self.writing.loaded.drafter)
        return found | {"usage": _usage(end.stats), "timings": timings} | hash_of(end)

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{self.writing.name}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.writing.loaded.offer.name,
            "output": [dict(item) for item in self._items],
            "error": None,
            "incomplete_details": None,
            "temperature": self.ask.params.sampling.temperature,
            "top_p": self.ask.params.sampling.top_p,
            "background": False,
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            **self._echo,
        }

    # ---- the items, one after the other ------------------------------------------------------

    def _open(self, kind: str, fields: Mapping[str, Any]) -> Lines:
        lines = self._close()
        start, base, _ = _ITEMS[kind]
        name = f"{start}_{self.writing.name}_{len(self._items)}"
        self._kind, self._item, self._text = kind, {**base, "id": name, **fields}, ""
        empty: dict[str, Any] = {"arguments": ""} if kind == "call" else {"content": []}
        item = {**self._item, **empty, "status": "in_progress"}
        lines.append(self._of_item("response.output_item.added", item=item))
        if kind == "call":
            return lines
        part = self._of_item("response.content_part.added", part=self._part(""))
        return [*lines, part]

    def _close(self) -> Lines:
        if not self._kind:
            return []
        item = {**self._item, "status": "completed"}
        if self._kind == "call":
            item["arguments"] = self._text
            done = {"arguments": self._text, "name": item["name"]}
            lines = [self._item_event("done", **done)]
        else:
            part = self._part(self._text)
            item["content"] = [part]
            lines = [self._item_event("done", text=self._text)]
            lines.append(self._of_item("response.content_part.done", part=part))
        lines.append(self._of_item("response.output_item.done", item=item))
        self._items.append(item)
        self._kind = ""
        return lines

    def _part(self, text: str) -> dict[str, Any]:
        part: dict[str, Any] = {"type": _ITEMS[self._kind][2], "text": text}
        return part if self._kind == "reasoning" else part | {"annotations": [], "logprobs": []}

    def _item_event(self, name: str, /, **fields: Any) -> str:
        """Return an event of the text or the arguments of the item."""
        if self._kind == "text":
            fields["logprobs"] = []
        return self._of_item(f"response.{_ITEMS[self._kind][2]}.{name}", **fields)

    def _of_item(self, name: str, /, **fields: Any) -> str:
        where: dict[str, Any] = {"output_index": len(self._items)}
        if "item" not in fields:
            where["item_id"] = self._item["id"]
            where |= {} if self._kind == "call" else {"content_index": 0}
        return self._event(name, **where, **fields)

    def _event(self, name: str, /, **fields: Any) -> str:
        self._number += 1
        return event({"type": name, "sequence_number": self._number, **fields}, name)


def _usage(stats: Stats) -> dict[str, Any]:
    read, written = stats["prompt_tokens"], stats["generated_tokens"]
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": stats["reused_tokens"]},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": stats["reasoning_tokens"]},
        "total_tokens": read + written,
    }
