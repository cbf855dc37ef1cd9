"""The turns of a chat in one form for all APIs, and the prompt that is made of them.

The form is that of OpenAI's chat API, as templates read it: a text, calls whose arguments are
objects, and results with the id of their call.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlxspec.chat.prompts import ChatPrompts
from mlxspec.errors import MlxspecError
from mlxspec.params import GenerationParams
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.difference import common_length
from mlxspec_server.body import Refusal
from mlxspec_server.shelf import Loaded
from mlxspec_server.tools.calls import with_tools_told
from mlxspec_server.tools.choice import Tool

Turn = dict[str, Any]

_ROLES = {"developer": "system", "function": "tool"}
_TEXTS = ("text", "refusal")  # fields that hold the text of a part


@dataclass(frozen=True)
class Chat:
    """The turns of a request."""

    turns: list[Turn]  # at least one
    goes_on: bool  # whether the reply continues the last turn, which is the assistant's

    @staticmethod
    def of(stated: Iterable[Any], field: str = "messages", goes_on: bool = True) -> "Chat":
        """Return messages of OpenAI's chat API; consecutive assistant messages become one turn.

        `field` is the request field that holds them. `goes_on` allows the reply to continue a final
        assistant turn.
        """
        turns = _turns(stated)
        if not turns:
            raise Refusal(400, f"{field} must be a list with at least one message", field)
        is_reply = turns[-1]["role"] == "assistant" and "tool_calls" not in turns[-1]
        return Chat(turns, goes_on and is_reply and len(turns) > 1)


def _turns(stated: Iterable[Any]) -> list[Turn]:
    turns: list[Turn] = []
    open_calls: list[Turn] = []  # without a result so far
    num_calls = 0
    for message in stated:
        turn = _turn(message)
        if turn["role"] == "tool":
            turn["tool_call_id"] = _answered(turn, open_calls)
        for call in turn.get("tool_calls", ()):
            num_calls += 1
            call["id"] = call["id"] or f"call_{num_calls}"
            open_calls.append(call)
        if turns and turns[-1]["role"] == turn["role"] == "assistant":
            turns[-1] = _joined(turns[-1], turn)
        else:
            turns.append(turn)
    return turns


def _turn(stated: Any) -> Turn:
    if not isinstance(stated, Mapping) or not isinstance(stated.get("role"), str):
        raise Refusal(400, "a message must be an object with a role", "messages")
    turn = {name: value for name, value in stated.items() if value is not None}
    turn["role"] = _ROLES.get(turn["role"], turn["role"])
    turn["content"] = text_of(turn.get("content") or turn.pop("refusal", ""))
    calls = turn.pop("tool_calls", None) or []
    if function := turn.pop("function_call", None):  # OpenAI's older field for one call
        calls = [{"type": "function", "function": function}]
    if not isinstance(calls, list):
        raise Refusal(400, "tool_calls must be a list", "messages")
    return turn | ({"tool_calls": [_call(call) for call in calls]} if calls else {})


def _call(stated: Any) -> Turn:
    """Return a call with its arguments as an object, which templates expect."""
    function = stated.get("function") if isinstance(stated, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise Refusal(400, "a tool call must have a function with a name", "messages")
    function = {**function, "arguments": arguments_of(function)}
    return {**stated, "id": _id(stated.get("id")), "type": "function", "function": function}


def _answered(result: Turn, open_calls: list[Turn]) -> Any:
    """Return the id of the call that a result answers; without an id, the first open call."""
    named, name = _id(result.get("tool_call_id")), result.get("name")
    fits = [
        call
        for call in open_calls
        if named == call["id"] or (named is None and name in (None, call["function"]["name"]))
    ]
    if fits:
        open_calls.remove(fits[0])
    return fits[0]["id"] if fits else named


def _id(stated: Any) -> str | None:
    return stated if isinstance(stated, str) and stated else None


def _joined(first: Turn, second: Turn) -> Turn:
    both = {**first, **second}
    for name in ("content", "reasoning_content"):
        if texts := [turn[name] for turn in (first, second) if turn.get(name)]:
            both[name] = "\n\n".join(texts)
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    return both | ({"tool_calls": calls} if calls else {})


def text_of(content: Any) -> str:
    """Return the text of content, which is a text or a list of text parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise Refusal(400, "content must be a text, or a list of parts", "messages")
    return "".join(map(_part, content))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    fields = part if isinstance(part, Mapping) else {}
    text = next((fields[name] for name in _TEXTS if isinstance(fields.get(name), str)), None)
    if text is None:
        kind = fields.get("type", type(part).__name__)
        raise Refusal(400, f"content may be text alone; got a part of type {kind}", "messages")
    return str(text)


def arguments_of(function: Mapping[str, Any]) -> Any:
    """Return the arguments of a call, parsed if they are JSON."""
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


# ---- the prompt --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prompt:
    """The prompt of a reply; the last `num_begun` tokens already belong to the reply."""

    tokens: list[int]
    num_begun: int = 0


def chat_prompt(
    loaded: Loaded, chat: Chat, tools: Sequence[Tool], params: GenerationParams
) -> Prompt:
    """Return the prompt of a chat."""
    tokenizer, turns = loaded.engine.tokenizer, list(chat.turns)
    last = _with_thoughts_open(turns.pop(), tokenizer) if chat.goes_on else None
    if loaded.tools is not None and loaded.tools.is_plain:
        turns, tools = with_tools_told(turns, tools), ()
    prompts = ChatPrompts(tokenizer, loaded.offer.name, say=lambda line: None)
    args = prompts.template_args(params)
    encode = partial(tokenizer.encode, add_special_tokens=False)
    try:
        if last is None or not last["content"].strip():
            return Prompt(encode(prompts.render(turns, list(tools) or None, args)))
        start, begun = prompts.render_open([*turns, last], list(tools) or None, args)
        tokens = encode(start + begun)
    except (MlxspecError, ValueError) as error:
        raise Refusal(400, str(error), "messages") from error
    return Prompt(tokens, len(tokens) - common_length(tokens, encode(start)))


def _with_thoughts_open(turn: Turn, tokenizer: Tokenizer) -> Turn:
    """Return the last assistant turn; if it has only reasoning, the reasoning stays open."""
    thoughts, marks = turn.get("reasoning_content"), tokenizer.reasoning
    if marks is None or not thoughts or turn["content"].strip():
        return turn
    return {"role": "assistant", "content": f"{marks.start}\n{thoughts}"}


def raw_tokens(loaded: Loaded, prompt: Any) -> list[int]:
    """Return the tokens of a prompt without a template; `prompt` is a text or token ids."""
    if isinstance(prompt, str):
        try:
            return loaded.engine.tokenizer.encode(prompt)
        except ValueError as error:
            raise Refusal(400, str(error), "prompt") from error
    is_ids = isinstance(prompt, list) and all(type(token) is int for token in prompt)
    if not is_ids:
        message = "prompt must be a text, a list of token ids, or a list of either"
        raise Refusal(400, message, "prompt")
    return list(prompt)
